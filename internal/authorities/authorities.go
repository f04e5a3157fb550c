// Package authorities reads files of certificate authorities, for settings of the peers to trust.
package authorities

import (
	"crypto/x509"
	"fmt"
	"os"
)

// Read returns the authorities in the file, which are PEM.
func Read(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate in PEM", path)
	}
	return pool, nil
}
