"""The audit log: who did, revealed or was refused what. Rows are written with their cause, sealed into chains, and signed."""
