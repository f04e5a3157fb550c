//go:build !linux

package child

import (
	"errors"
	"os"
	"syscall"
)

func apart(nobody bool) (*syscall.SysProcAttr, error) {
	if nobody && os.Getuid() == 0 {
		return nil, errors.New("memcached does not run as root: run this as another user")
	}
	return nil, nil
}
