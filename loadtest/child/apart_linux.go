package child

import (
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// apart keeps a child from the terminal's signals, which this process handles, and ends the
// child if this process is killed. A child that refuses to run as root loses root before it
// runs: if it changed its user itself, the kernel would not end it.
func apart(nobody bool) (*syscall.SysProcAttr, error) {
	attributes := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if !nobody || os.Getuid() != 0 {
		return attributes, nil
	}
	found, err := user.Lookup("nobody")
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(found.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(found.Gid, 10, 32)
	attributes.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return attributes, err
}
