package callback

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/midgehq/midge/storage"
)

// These are the form of a secret and the size of its key, as Standard Webhooks has them.
const (
	secretPrefix = "whsec_"
	minKey       = 24
	maxKey       = 64
)

// keysOf returns the keys of secrets. Its errors do not show the secrets.
func keysOf(secrets []string) ([][]byte, error) {
	if len(secrets) > maxSecrets {
		return nil, storage.Invalid("secrets", fmt.Sprintf("%d of them", len(secrets)), "one or two")
	}
	keys := make([][]byte, len(secrets))
	for i, secret := range secrets {
		text, found := strings.CutPrefix(secret, secretPrefix)
		key, err := base64.StdEncoding.Strict().DecodeString(text)
		if !found || err != nil || len(key) < minKey || len(key) > maxKey {
			return nil, storage.Invalid("secret", "***",
				"%q and the base64 of %d to %d bytes", secretPrefix, minKey, maxKey)
		}
		keys[i] = key
	}
	return keys, nil
}

// signature returns the value of the header webhook-signature, "" without keys.
func signature(keys [][]byte, id, timestamp string, body []byte) string {
	all := make([]string, len(keys))
	for i, key := range keys {
		sum := hmac.New(sha256.New, key)
		sum.Write([]byte(id + "." + timestamp + "."))
		sum.Write(body)
		all[i] = "v1," + base64.StdEncoding.EncodeToString(sum.Sum(nil))
	}
	return strings.Join(all, " ")
}
