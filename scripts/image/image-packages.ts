/**
 * The part of an image that the distribution gives: packages of this machine's own apt sources, fetched and checked by
 * apt (signatures, security updates) and unpacked without running anything of them, so that one architecture can be
 * made on another.
 */
import { mkdirSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { run } from './image-tools.ts'

/**
 * What the product calls: nft and wg; where the node's kernel has no WireGuard, wireguard-go, and ip and ethtool for
 * the cable that joins its segments. libatomic and libstdc++ belong to Node; a shell and coreutils to bin/sealane.
 */
const PACKAGES = [
  'nftables',
  'wireguard-tools',
  'wireguard-go',
  'iproute2',
  'ethtool',
  'libatomic1',
  'libstdc++6',
  'dash',
  'coreutils',
  'base-files',
]

/** Wanted by scripts of packages, which are never run. */
const NOT_UNPACKED = /^(debconf|perl-base|dpkg|tar|gcc-12-base|libdb5\.3|debianutils)_/

/** Fetches into `folder`, which is kept for the next time. Gives the files. Throws with what apt said. */
export function fetchPackages(folder: string, architecture: string): readonly string[] {
  const archives = join(folder, 'cache', 'archives')
  rmSync(archives, { recursive: true, force: true })
  for (const part of ['state/lists/partial', 'cache/archives/partial', 'log', 'etc']) {
    mkdirSync(join(folder, part), { recursive: true })
  }
  const config = join(folder, 'apt.conf')
  writeFileSync(join(folder, 'status'), '')
  writeFileSync(join(folder, 'etc', 'preferences'), PREFERENCES)
  writeFileSync(config, aptConfig(folder, architecture))
  const env = { APT_CONFIG: config, DEBIAN_FRONTEND: 'noninteractive' }
  run('apt-get', ['-q', 'update'], { env })
  run('apt-get', ['-q', '-y', '--download-only', 'install', ...PACKAGES], { env })
  return readdirSync(archives)
    .filter((name) => name.endsWith('.deb') && !NOT_UNPACKED.test(name))
    .sort()
    .map((name) => join(archives, name))
}

/** Nothing of what is installed on this machine counts, and nothing of it is touched. */
function aptConfig(folder: string, architecture: string): string {
  return `Dir::State "${folder}/state";
Dir::State::status "${folder}/status";
Dir::Cache "${folder}/cache";
Dir::Log "${folder}/log";
Dir::Etc::preferences "${folder}/etc/preferences";
Dir::Etc::preferencesparts "${folder}/etc/none";
APT::Architecture "${architecture}";
APT::Architectures { "${architecture}"; };
APT::Sandbox::User "";
APT::Install-Recommends "false";
Acquire::Languages "none";
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
`
}

/** Of the distribution only, whatever else this machine installs from. */
const PREFERENCES = ['o=Debian', 'o=Ubuntu']
  .map((origin) => `Package: *\nPin: release ${origin}\nPin-Priority: 500\n`)
  .concat('Package: *\nPin: release *\nPin-Priority: -1\n')
  .join('\n')

const MERGED = ['bin', 'sbin', 'lib']

/** Unpacks into `root`, an empty folder. */
export function unpackPackages(files: readonly string[], root: string): void {
  for (const name of [...MERGED, 'lib64']) {
    mkdirSync(join(root, 'usr', name), { recursive: true })
    symlinkSync(`usr/${name}`, join(root, name))
  }
  const status = join(root, 'var', 'lib', 'dpkg', 'status.d')
  mkdirSync(status, { recursive: true })
  for (const file of files) {
    const content = run('dpkg-deb', ['--fsys-tarfile', file])
    run('tar', ['-x', '--keep-directory-symlink', '--no-same-owner', '-C', root], { input: content })
    // Where scanners for known weaknesses look for what is in an image without dpkg.
    const name = run('dpkg-deb', ['-f', file, 'Package']).toString().trim()
    writeFileSync(join(status, name), run('dpkg-deb', ['-f', file]))
  }
  // Licences stay.
  for (const name of ['man', 'info', 'locale', 'lintian', 'bash-completion', 'bug']) {
    rmSync(join(root, 'usr', 'share', name), { recursive: true, force: true })
  }
  writeFileSync(join(root, 'etc', 'passwd'), 'root:x:0:0:root:/root:/bin/sh\nsealane:x:65532:65532:sealane:/:/bin/sh\n')
  writeFileSync(join(root, 'etc', 'group'), 'root:x:0:\nsealane:x:65532:\n')
  writeFileSync(join(root, 'etc', 'nsswitch.conf'), 'passwd: files\ngroup: files\nhosts: files dns\n')
}
