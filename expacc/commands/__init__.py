"""What each command of the command line does; heavy libraries are imported when it runs."""
