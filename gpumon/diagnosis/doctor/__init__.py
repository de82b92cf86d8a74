"""What the doctor looks at, as pure functions of facts that are gathered elsewhere."""
