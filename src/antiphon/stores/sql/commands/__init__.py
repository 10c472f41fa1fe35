"""What each command does to the rows, by subject. `antiphon.core.commands` says what it promises."""
