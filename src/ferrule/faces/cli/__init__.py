"""The command line. `root` lists the commands; each is loaded when it is called."""
