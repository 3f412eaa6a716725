/**
 * The systemd units of a node: one service for each part, and a target for all of them. Each service has only the
 * rights that its part uses. Pure.
 */

/** The first line of each unit. Only files that begin with it are changed or removed. */
export const UNIT_HEADER = '# Written by "sealane site install"; "sealane site uninstall" removes it. Do not edit it.'

/** The unit that starts and stops the others. */
export const TARGET = 'sealane.target'

/** The parts in the order in which they are started: the hub first, for other nodes, and a gateway last, so that it finds the other parts at work. */
export const UNIT_ORDER = ['hub', 'agent', 'dns', 'routeagent', 'gateway'] as const
export type UnitPart = (typeof UNIT_ORDER)[number]

export interface Unit {
  /** Its file, such as `sealane-agent.service`. */
  readonly name: string
  readonly text: string
  /** The address of the part's status page. Absent for the target. */
  readonly page?: string
}

export interface UnitsInit {
  /** Absolute path of the program `sealane`. */
  readonly program: string
  /** The name of the site, and absolute paths. */
  readonly site: { readonly name: string; readonly file: string; readonly state: string }
  readonly node: string
  readonly parts: readonly UnitPart[]
  /** The ports of the addresses at which dns listens. */
  readonly dnsPorts: readonly number[]
  /** The ports of the addresses at which the hub listens. */
  readonly hubPorts: readonly number[]
  /** The UDP ports of the lanes of this node. */
  readonly lanePorts: readonly number[]
  /** The UDP port of the overlay. */
  readonly overlayPort: number
  /** The port of each part's status page on loopback. */
  readonly statusPorts: Readonly<Record<UnitPart, number>>
}

/** Gives the target first, then the services in the order in which they are started. */
export function planUnits(init: UnitsInit): readonly Unit[] {
  const parts = UNIT_ORDER.filter((part) => init.parts.includes(part))
  return [{ name: TARGET, text: targetText(init) }, ...parts.map((part) => serviceUnit(part, init))]
}

export function unitName(part: UnitPart): string {
  return `sealane-${part}.service`
}

function targetText({ site, node }: UnitsInit): string {
  return sections({
    Unit: [`Description=Sealane: site ${site.name}, node ${node}`],
    Install: ['WantedBy=multi-user.target'],
  })
}

function serviceUnit(part: UnitPart, init: UnitsInit): Unit {
  const { program, site, node, statusPorts } = init
  const page = `127.0.0.1:${statusPorts[part]}`
  const command = [program, 'up', '--site', site.file, '--node', node, '--component', part, '--status-listen', page]
  const text = sections({
    Unit: [
      `Description=Sealane ${part} of site ${site.name}`,
      // A firewall that loads its rules later would remove those of Sealane until the next round.
      'After=network-online.target nftables.service firewalld.service',
      'Wants=network-online.target',
      `PartOf=${TARGET}`,
      `RequiresMountsFor=${site.file} ${site.state}`,
      'StartLimitIntervalSec=0',
      `${PAGE_KEY}=${page}`,
    ],
    Service: [
      'Type=exec',
      `ExecStart=${command.join(' ')}`,
      // Settings such as SEALANE_HEARTBEAT.
      'EnvironmentFile=-/etc/default/sealane',
      // A part ends with 0 once its site has left, and with another code in every other case.
      'Restart=on-failure',
      'RestartSec=5',
      'TimeoutStopSec=30',
      ...rightsOf(part, init),
      ...CONFINED,
      // Otherwise the whole file system is read-only.
      `ReadWritePaths=${site.state}`,
    ],
    Install: [`WantedBy=${TARGET}`],
  })
  return { name: unitName(part), text, page }
}

/** systemd ignores keys that begin with X-. */
const PAGE_KEY = 'X-Sealane-Status'

/** The address of the status page in the text of a unit that planUnits() made. Undefined for the target. */
export function pageOf(text: string): string | undefined {
  return /^X-Sealane-Status=(\S+)$/m.exec(text)?.[1]
}

/** Port numbers below this one need a capability (capabilities(7), CAP_NET_BIND_SERVICE). */
const FIRST_FREE_PORT = 1024

/** The rights that differ between the parts. Every part runs as root without capabilities besides these. */
function rightsOf(part: UnitPart, init: UnitsInit): readonly string[] {
  const isLow = portsOf(part, init).some((port) => port < FIRST_FREE_PORT)
  if (part === 'agent' || part === 'dns' || part === 'hub') {
    return [
      `CapabilityBoundingSet=${isLow ? 'CAP_NET_BIND_SERVICE' : ''}`,
      'PrivateDevices=yes',
      'ProtectKernelTunables=yes',
      'ProtectProc=invisible',
      // Interfaces are read by netlink.
      'RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK',
    ]
  }
  return [
    `CapabilityBoundingSet=CAP_NET_ADMIN${isLow ? ' CAP_NET_BIND_SERVICE' : ''}`,
    // Both write settings below /proc/sys/net and /sys/class/net, so these are not read-only.
    'ProtectKernelTunables=no',
    'RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK',
    // The same priority over other processes as in processes that are started by hand (runtime/process-resources.ts),
    // which here needs no CAP_SYS_NICE. systemd shares processors between services by their weight.
    'Nice=-10',
    'CPUWeight=900',
    ...(part === 'gateway' ? GATEWAY_RIGHTS : ['PrivateDevices=yes']),
  ]
}

/**
 * The ports that a part binds. Those of devices count, too: the kernel binds the port of a WireGuard or VXLAN device
 * with the rights of the process that switches the device on, and wireguard-go has the rights of the gateway.
 */
function portsOf(part: UnitPart, { dnsPorts, hubPorts, lanePorts, overlayPort }: UnitsInit): readonly number[] {
  return {
    ...{ agent: [], dns: dnsPorts, hub: hubPorts },
    ...{ routeagent: [overlayPort], gateway: [...lanePorts, overlayPort] },
  }[part]
}

/** Where the kernel has no WireGuard, wireguard-go makes the tunnels. */
const GATEWAY_RIGHTS: readonly string[] = [
  'DevicePolicy=closed',
  'DeviceAllow=/dev/net/tun rw',
  // Its sockets.
  'RuntimeDirectory=wireguard',
  'RuntimeDirectoryPreserve=yes',
  // wireguard-go outlives a restart of the gateway, so that packets flow meanwhile.
  'KillMode=process',
]

/** Alike in all services. V8 compiles code at run time, so MemoryDenyWriteExecute stays off. */
const CONFINED: readonly string[] = [
  'NoNewPrivileges=yes',
  'ProtectSystem=strict',
  'ProtectHome=yes',
  'PrivateTmp=yes',
  'ProtectClock=yes',
  'ProtectControlGroups=yes',
  'ProtectHostname=yes',
  'ProtectKernelLogs=yes',
  'ProtectKernelModules=yes',
  'RestrictNamespaces=yes',
  'RestrictRealtime=yes',
  'RestrictSUIDSGID=yes',
  'LockPersonality=yes',
  'KeyringMode=private',
  'SystemCallArchitectures=native',
  'SystemCallFilter=@system-service',
  'SystemCallFilter=~@privileged',
  'SystemCallErrorNumber=EPERM',
]

function sections(parts: Readonly<Record<string, readonly string[]>>): string {
  const texts = Object.entries(parts).map(([name, lines]) => `[${name}]\n${lines.map((line) => `${line}\n`).join('')}`)
  return `${UNIT_HEADER}\n${texts.join('\n')}`
}

/** Folders that are empty or private in a service with ProtectHome and PrivateTmp. */
export const HIDDEN_FOLDERS: readonly string[] = ['/home', '/root', '/run/user', '/tmp', '/var/tmp']

/**
 * Why a unit cannot name this absolute path, as `expected …`; undefined if it can. systemd gives a meaning to blanks,
 * quotes, `%`, `$` and backslashes.
 */
export function unitPathProblem(path: string, hidden = HIDDEN_FOLDERS): string | undefined {
  if (!/^\/[\w./@+,=:-]*$/.test(path)) return 'expected a path of letters, digits and . _ - / @ + , = :'
  if (hidden.some((folder) => `${path}/`.startsWith(`${folder}/`))) {
    return `expected a path outside of ${hidden.join(', ')}, which are hidden from services`
  }
  return undefined
}

export interface UnitChanges {
  /** New and changed units, in order. Their files are written. */
  readonly changed: readonly Unit[]
  /** Names of units that exist and are no longer planned. */
  readonly removed: readonly string[]
  /** For people: the name of each unit that changes, with the lines that go (-) and those that come (+). */
  readonly text: string
}

/** `installed` are the texts of the units that exist, by name. */
export function planUnitChanges(wanted: readonly Unit[], installed: ReadonlyMap<string, string>): UnitChanges {
  const changed = wanted.filter(({ name, text }) => installed.get(name) !== text)
  const removed = [...installed.keys()].filter((name) => wanted.every((unit) => unit.name !== name))
  const lines = [
    ...changed.map(({ name, text }) => difference(name, installed.get(name), text)),
    ...removed.map((name) => `${name}: is removed\n`),
  ]
  return { changed, removed, text: lines.join('') }
}

function difference(name: string, before: string | undefined, after: string): string {
  if (before === undefined) return `${name}: is new\n`
  const [old, fresh] = [before.split('\n'), after.split('\n')]
  const gone = old.filter((line) => !fresh.includes(line)).map((line) => `  - ${line}\n`)
  const added = fresh.filter((line) => !old.includes(line)).map((line) => `  + ${line}\n`)
  const lines = [...gone, ...added]
  return `${name}: changes\n${lines.length === 0 ? '  the order of its lines\n' : lines.join('')}`
}
