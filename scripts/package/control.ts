/** The control file of the Debian package (deb-control(5)). */

export interface ControlInit {
  /** As package.json has it. */
  readonly version: string
  readonly description: string
  /** In Debian's words. */
  readonly architecture: string
  /** The size of all files. */
  readonly bytes: number
}

/**
 * What the product calls (scripts/image/image-packages.ts). A machine that runs only a broker, an agent or dns needs no
 * wg, and one whose kernel has WireGuard neither wireguard-go nor ethtool. The first three belong to Node.
 */
const RELATIONS = {
  Depends: 'libc6 (>= 2.28), libstdc++6, libatomic1, iproute2, nftables',
  Recommends: 'wireguard-tools',
  Suggests: 'wireguard-go, ethtool',
} as const

export function controlFile({ version, description, architecture, bytes }: ControlInit): string {
  const fields = {
    Package: 'sealane',
    Version: debianVersion(version),
    Architecture: architecture,
    Maintainer: 'Sealane <sealane@localhost>',
    'Installed-Size': String(Math.ceil(bytes / 1024)),
    Section: 'net',
    Priority: 'optional',
    ...RELATIONS,
    Description: description,
  }
  return Object.entries(fields)
    .map(([name, value]) => `${name}: ${value}\n`)
    .join('')
}

/** Versions of npm begin a pre-release with a hyphen, and Debian orders one before the release by a tilde. */
export function debianVersion(version: string): string {
  return version.replace('-', '~')
}
