"""`liveshape check`: every node of a program against an independent reference, at several live shapes."""
