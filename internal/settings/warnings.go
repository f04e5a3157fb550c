package settings

import (
	"log/slog"

	"github.com/counterd/counterd/events"
)

// maxFaultsLogged bounds the lines in the log for the warnings of one file.
const maxFaultsLogged = 1000

// LogWarnings logs entries of a file that are valid and probably a mistake. A command that shows all of
// them may be empty.
func LogWarnings(log *slog.Logger, what, command string, warnings events.Faults) {
	for _, warning := range warnings[:min(len(warnings), maxFaultsLogged)] {
		log.Warn("warning of the "+what+" file", "line", warning.Line, "warning", warning.Error())
	}
	if len(warnings) > maxFaultsLogged {
		message := "more warnings of the " + what + " file"
		if command != "" {
			message += ": " + command + " shows all"
		}
		log.Warn(message, "warnings", len(warnings)-maxFaultsLogged)
	}
}
