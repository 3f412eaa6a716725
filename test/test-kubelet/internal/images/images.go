// Package images says how an image's programs are run. There is no registry: a JSON file maps image names to
// programs of this machine.
package images

import (
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
)

// Image is one entry of the images file.
type Image struct {
	// Root is "host": the machine's own programs, read-only, below a private root folder.
	Root       string            `json:"root,omitempty"`
	Entrypoint []string          `json:"entrypoint,omitempty"`
	Cmd        []string          `json:"cmd,omitempty"`
	Env        map[string]string `json:"env,omitempty"`
	WorkingDir string            `json:"workingDir,omitempty"`
	UID        int               `json:"uid,omitempty"`
	GID        int               `json:"gid,omitempty"`
	// Paths in the container, each with the file or folder of the machine that is seen there, read-only.
	Paths map[string]string `json:"paths,omitempty"`
	// Devices that the container may use beside the usual ones, such as /dev/net/tun.
	Devices []string `json:"devices,omitempty"`
}

// Images is the whole file.
type Images map[string]Image

// Load reads the images file. Fields it does not know are an error: a typing mistake must not become a wrong test.
func Load(path string) (Images, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	decoder := json.NewDecoder(file)
	decoder.DisallowUnknownFields()
	result := Images{}
	if err := decoder.Decode(&result); err != nil {
		return nil, fmt.Errorf("images file %s: %w", path, err)
	}
	for name, image := range result {
		if image.Root != "" && image.Root != "host" {
			return nil, fmt.Errorf("images file %s: %s: root is %q, expected \"host\"", path, name, image.Root)
		}
	}
	return result, nil
}

// Find gives the entry for a container's image. The registry and repository that an image has by default may be
// written out or not.
func (images Images) Find(name string) (Image, error) {
	wanted := plain(name)
	for have, image := range images {
		if plain(have) == wanted {
			return image, nil
		}
	}
	return Image{}, fmt.Errorf("image %q is not in the test kubelet's images file, which has %s", name, strings.Join(images.Names(), ", "))
}

// Names gives the names of all images, sorted.
func (images Images) Names() []string {
	names := make([]string, 0, len(images))
	for name := range images {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

func plain(name string) string {
	name = strings.TrimPrefix(name, "docker.io/")
	return strings.TrimPrefix(name, "library/")
}
