package child

import (
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// apart keeps a child from the signals of the terminal, which are for this process
// to handle, and ends it should this process be killed.
//
// A child that is not to be root is made to be nobody before it runs: should it do so
// itself, the system would forget to end it.
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
