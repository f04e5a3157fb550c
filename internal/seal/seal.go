// Package seal keeps bytes that others hold from being read and altered.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
)

// Key seals. The empty Key only adds a checksum.
type Key []byte

// KeyOf returns the key for a use of a secret.
func KeyOf(secret []byte, use string) Key {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(use))
	return mac.Sum(nil)
}

// The first byte of what Seal returns: what follows has a checksum, or is sealed. The second is a version.
const (
	plainForm  = 'p'
	sealedForm = 's'
	version    = 1

	headBytes = 2
	sumBytes  = 4
	saltBytes = 16
)

// Seal returns the content in a form that Open takes, and that only Open of the same key takes: AES-GCM, with a key
// derived for this content alone, since random nonces of one key would repeat in time.
func (k Key) Seal(content []byte) ([]byte, error) {
	if len(k) == 0 {
		b := append([]byte{plainForm, version}, content...)
		return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b)), nil
	}
	b := append([]byte{sealedForm, version}, make([]byte, saltBytes)...)
	if _, err := rand.Read(b[headBytes:]); err != nil {
		return nil, err
	}
	sealer, err := k.sealer(b[headBytes:])
	if err != nil {
		return nil, err
	}
	return sealer.Seal(b, make([]byte, sealer.NonceSize()), content, b[:headBytes]), nil
}

// Open returns the content of what Seal returned, and false if it was altered or sealed by another key.
func (k Key) Open(b []byte) (content []byte, ok bool) {
	switch {
	case len(b) < headBytes+sumBytes || b[1] != version:
		return nil, false
	case b[0] == plainForm && len(k) == 0:
		body := b[:len(b)-sumBytes]
		return body[headBytes:], crc32.ChecksumIEEE(body) == binary.BigEndian.Uint32(b[len(body):])
	case len(k) == 0 || !IsSealed(b):
		return nil, false
	}
	sealer, err := k.sealer(b[headBytes : headBytes+saltBytes])
	if err != nil {
		return nil, false
	}
	content, err = sealer.Open(nil, make([]byte, sealer.NonceSize()), b[headBytes+saltBytes:], b[:headBytes])
	return content, err == nil
}

// IsSealed reports whether b looks like what a Key that is not empty returns.
func IsSealed(b []byte) bool {
	return len(b) > headBytes+saltBytes && b[0] == sealedForm && b[1] == version
}

// sealer returns what seals one content.
func (k Key) sealer(salt []byte) (cipher.AEAD, error) {
	mac := hmac.New(sha256.New, k)
	mac.Write(salt)
	block, err := aes.NewCipher(mac.Sum(nil))
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}
