"""Official clients, unmodified, against a running installation. A package, so that the installation ends with its last test."""
