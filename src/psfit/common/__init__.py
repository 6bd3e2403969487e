"""Small tools that every layer uses: rules for arguments, output files, facts about the machine, results."""
