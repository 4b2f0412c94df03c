"""The command line. Each module holds one command or one group of commands, or what several of them share."""
