"""Operations that the screens and the command line share."""
