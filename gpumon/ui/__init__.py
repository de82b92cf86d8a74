"""The terminal screen. It reads frames and draws; it never calls the driver and never waits for anything."""
