package settings

import (
	"log/slog"

	"github.com/counterd/counterd/events"
)

// maxFaultsLogged bounds the lines in the log for the warnings of one file.
const maxFaultsLogged = 1000

// LogWarnings logs what is valid in a file and probably a mistake. The command shows all warnings.
func LogWarnings(log *slog.Logger, what, command string, warnings events.Faults) {
	for _, warning := range warnings[:min(len(warnings), maxFaultsLogged)] {
		log.Warn("warning of the "+what+" file", "line", warning.Line, "warning", warning.Error())
	}
	if len(warnings) > maxFaultsLogged {
		log.Warn("more warnings of the "+what+" file: "+command+" shows all", "warnings", len(warnings)-maxFaultsLogged)
	}
}
