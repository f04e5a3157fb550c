package child

import (
	"os"
	"syscall"
)

// unprivilegedID is the ID of the user without rights, and of its group.
const unprivilegedID = 65534

// apart keeps a child from the terminal's signals, which this process handles, and ends the
// child if this process is killed. A child that refuses to run as root loses root before it
// runs: if it changed its user itself, the kernel would not end it.
func apart(unprivileged bool) *syscall.SysProcAttr {
	attributes := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if unprivileged && os.Getuid() == 0 {
		attributes.Credential = &syscall.Credential{Uid: unprivilegedID, Gid: unprivilegedID}
	}
	return attributes
}
