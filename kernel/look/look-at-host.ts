/**
 * Reads the network state of this host for diagnosis and changes nothing: settings, firewalls, our routes, and limited
 * resources. It names what cannot be read and returns the rest.
 */
import { readFile, readdir, statfs } from 'node:fs/promises'
import { networkInterfaces } from 'node:os'
import { join } from 'node:path'
import { FAMILIES, type Family } from '../../model/addresses/addresses.ts'
import {
  LANE_DEVICE_PREFIX,
  NFT_SET_HAIRPIN,
  NFT_TABLE_GATEWAY,
  NFT_TABLE_NODE,
  ROUTE_TABLE_LANES,
  ROUTE_TABLE_LANES_PUBLIC,
  ROUTE_TABLE_NODE,
  ROUTE_TABLE_NODE_PUBLIC,
} from '../../model/model.ts'
import { messageOf } from '../../runtime/runtime.ts'
import { type RunCommand, runCommand } from '../kernel.ts'
import { type DeviceSetting, SysfsBridgePorts, deviceSettings, hairpinCommand } from '../tuning/tuning.ts'
import { type RulesetLook, parseRuleset } from './parse-ruleset.ts'

// Reads the JSON output of kernel tools. A tool may print incomplete JSON if the listed objects change meanwhile.

/** How to run the tools. */
interface ToolRun {
  readonly run: RunCommand
  readonly timeoutMs: number
  readonly signal: AbortSignal
}

const TRIES = 3

/**
 * Throws if the tool fails, or prints no JSON in TRIES attempts. If `none` is given, it is returned when the tool fails
 * or prints nothing.
 */
async function jsonFrom(
  { run, timeoutMs, signal }: ToolRun,
  [name, ...args]: readonly [string, ...string[]],
  none?: unknown,
): Promise<unknown> {
  for (let tries = 1; ; tries += 1) {
    const { code, stdout, stderr } = await run(name, args, { signal, timeoutMs })
    if (none !== undefined && (code !== 0 || stdout.trim() === '')) return none
    if (code !== 0) throw new Error(`${name} ${args.join(' ')}: ${stderr.trim().slice(0, 200)}`)
    try {
      return JSON.parse(stdout)
    } catch (cause) {
      if (tries === TRIES) throw new Error(`${name} ${args.join(' ')}: it prints no JSON`, { cause })
    }
  }
}

export interface HostLook {
  readonly devices: readonly DeviceLook[]
  readonly sysctls: Readonly<Record<string, string>>
  /** The settings of our devices that differ from kernel/tuning/device-settings.ts. */
  readonly deviceSettings: readonly (DeviceSetting & { readonly found: string })[]
  readonly firewall?: RulesetLook
  readonly routes?: Readonly<Record<string, readonly string[]>>
  readonly kernel: KernelLook
  /** Backends of this machine that do not reach themselves, since their bridge port is not in hairpin mode. */
  readonly cutOffFromSelf: readonly CutOffBackend[]
  readonly connections?: Share
  readonly disks: readonly (Share & { readonly path: string })[]
}

/** What known faults of kernels depend on. */
export interface KernelLook {
  /** As `uname -r` prints it: `6.18.3-arch1-1`. '' if it cannot be read. */
  readonly release: string
  /** The processor has AVX2, for which netfilter has code of its own. */
  readonly avx2: boolean
}

/** An IPv4 address, and the command that would mend it. */
export interface CutOffBackend {
  readonly address: string
  readonly command: string
}

export interface Share {
  readonly used: number
  readonly limit: number
}

export interface HostTrouble {
  readonly what: string
  readonly message: string
}

export interface LookInit {
  /** Folders whose file systems are checked. */
  readonly folders: readonly string[]
  readonly timeoutMs: number
  readonly run?: RunCommand
  /** Default /proc. */
  readonly proc?: string
  /** Default /sys/class/net. */
  readonly netDevices?: string
}

/** The prefix of our tables and devices. */
const OURS = NFT_TABLE_GATEWAY.slice(0, NFT_TABLE_GATEWAY.indexOf('_') + 1)
const TABLES = [ROUTE_TABLE_LANES, ROUTE_TABLE_LANES_PUBLIC, ROUTE_TABLE_NODE, ROUTE_TABLE_NODE_PUBLIC]
const SETTINGS = ['net/ipv4/ip_forward', 'net/ipv4/conf/all/rp_filter', 'net/ipv6/conf/all/forwarding']

/** Rejects only with the reason of the signal. */
export async function lookAtHost(
  init: LookInit,
  signal: AbortSignal,
): Promise<{ readonly look: HostLook; readonly troubles: readonly HostTrouble[] }> {
  const { run = runCommand, timeoutMs, folders, proc = '/proc', netDevices } = init
  const troubles: HostTrouble[] = []
  const unlessTrouble = async <T>(what: string, work: Promise<T>): Promise<T | undefined> => {
    try {
      return await work
    } catch (error) {
      signal.throwIfAborted()
      troubles.push({ what, message: messageOf(error) })
      return undefined
    }
  }
  const tool: ToolRun = { run, timeoutMs, signal }
  const [devices, firewall, routes, sysctls, deviceSettings, kernel, connections, disks, cutOffFromSelf] =
    await Promise.all([
      unlessTrouble('Devices', devicesOf(tool)),
      unlessTrouble('Firewall', firewallOf(tool)),
      unlessTrouble('Routes', routesOf(tool)),
      settingsOf(proc),
      changedSettings(proc),
      kernelOf(proc),
      connectionsOf(proc),
      disksOf(folders),
      cutOffOf(tool, proc, new SysfsBridgePorts(netDevices, join(proc, 'net/arp'))),
    ])
  const look = {
    devices: devices ?? carryingDevices(),
    sysctls,
    deviceSettings,
    kernel,
    cutOffFromSelf,
    ...(firewall === undefined ? {} : { firewall }),
    ...(routes === undefined ? {} : { routes }),
    ...(connections === undefined ? {} : { connections }),
    disks,
  }
  return { look, troubles }
}

async function firewallOf(tool: ToolRun): Promise<RulesetLook> {
  return parseRuleset(await jsonFrom(tool, ['nft', '--json', '--terse', 'list', 'ruleset']), OURS)
}

/** A node has a device for each pod. Devices beyond this number are not read. */
const MOST_DEVICES = 2000

/**
 * Reads global settings, rp_filter of our devices, and forwarding of other devices, of which only those with forwarding
 * off are returned because a node has many.
 */
async function settingsOf(proc: string): Promise<Readonly<Record<string, string>>> {
  const devices = await devicesWithSettings(proc, 4)
  const ours = devices.filter(isOurs).map((name) => `net/ipv4/conf/${name}/rp_filter`)
  const others = devices.filter((name) => !isOurs(name)).slice(0, MOST_DEVICES)
  const [found, off] = await Promise.all([
    valuesOf(proc, [...SETTINGS, ...ours]),
    valuesOf(
      proc,
      others.map((name) => `net/ipv4/conf/${name}/forwarding`),
    ),
  ])
  return Object.fromEntries([...found, ...off.filter(([, value]) => value === '0')])
}

/** Compares IPv6 settings only for devices that have IPv6 enabled. */
async function changedSettings(proc: string): Promise<HostLook['deviceSettings']> {
  const all = await Promise.all(
    FAMILIES.map(async (family) => {
      const devices = (await devicesWithSettings(proc, family)).filter(isOurs)
      const wanted = devices.flatMap((device) => deviceSettings(device, [family]))
      const found = new Map(
        await valuesOf(
          proc,
          wanted.map(({ name }) => name),
        ),
      )
      return wanted
        .filter(({ name }) => family === 4 || found.get(name.replace(/[^/]*$/, 'disable_ipv6')) === '0')
        .flatMap((one) => ({ ...one, found: found.get(one.name) ?? one.value }))
        .filter(({ value, found: is }) => value !== is)
    }),
  )
  return all.flat()
}

function isOurs(device: string): boolean {
  return device.startsWith(LANE_DEVICE_PREFIX)
}

/** Returns all devices but `all`, `default` and `lo`. */
async function devicesWithSettings(proc: string, family: Family): Promise<readonly string[]> {
  const names = await readdir(join(proc, `sys/net/ipv${family}/conf`)).catch((): string[] => [])
  return names.filter((name) => !['all', 'default', 'lo'].includes(name))
}

async function valuesOf(proc: string, names: readonly string[]): Promise<(readonly [string, string])[]> {
  const found = await Promise.all(names.map(async (name) => [name, await numberText(join(proc, 'sys', name))] as const))
  return found.flatMap(([name, value]) => (value === undefined ? [] : [[name, value] as const]))
}

async function kernelOf(proc: string): Promise<KernelLook> {
  const text = (name: string): Promise<string> => readFile(join(proc, name), 'utf8').catch(() => '')
  const [release, processors] = await Promise.all([text('sys/kernel/osrelease'), text('cpuinfo')])
  return { release: release.trim().slice(0, 100), avx2: /^flags\s*:.*\savx2(\s|$)/m.test(processors) }
}

/**
 * The backends are those of the set of table sealane_node, which is also how a connection to itself is known. Empty if
 * netfilter does not see bridges, as such packets are then routed.
 */
async function cutOffOf(tool: ToolRun, proc: string, ports: SysfsBridgePorts): Promise<readonly CutOffBackend[]> {
  if ((await numberText(join(proc, 'sys/net/bridge/bridge-nf-call-iptables'))) !== '1') return []
  const list = ['nft', '--json', 'list', 'set', 'ip', NFT_TABLE_NODE, NFT_SET_HAIRPIN] as const
  const backends = new Set(setElements(await jsonFrom(tool, list, {}).catch(() => ({}))))
  const behind = await ports.behind(backends)
  return [...behind].flatMap(([address, { name, hairpin }]) =>
    hairpin ? [] : [{ address, command: hairpinCommand(name, true) }],
  )
}

/** The first part of each element of the listed set: `{ concat: [a, b] }`. */
function setElements(listed: unknown): readonly string[] {
  const { nftables } = (listed ?? {}) as { readonly nftables?: unknown }
  const items = Array.isArray(nftables) ? (nftables as readonly { readonly set?: { readonly elem?: unknown } }[]) : []
  return items
    .flatMap(({ set }) => (Array.isArray(set?.elem) ? (set.elem as readonly unknown[]) : []))
    .flatMap((one) => {
      const [first] = (one as { readonly concat?: readonly unknown[] } | null)?.concat ?? []
      return typeof first === 'string' ? [first] : []
    })
}

async function connectionsOf(proc: string): Promise<Share | undefined> {
  const at = (name: string): string => join(proc, 'sys/net/netfilter', name)
  const [used, limit] = [await numberText(at('nf_conntrack_count')), await numberText(at('nf_conntrack_max'))]
  return used === undefined || limit === undefined ? undefined : { used: Number(used), limit: Number(limit) }
}

async function numberText(path: string): Promise<string | undefined> {
  const text = (await readFile(path, 'utf8').catch(() => '')).trim()
  return /^\d+$/.test(text) ? text : undefined
}

/** Returns the fuller share of each file system: its blocks, or its files if the file system counts them. */
async function disksOf(folders: readonly string[]): Promise<HostLook['disks']> {
  const all = await Promise.all(
    folders.map(async (path) => {
      const { blocks, bavail, files, ffree } = await statfs(path).catch(() => NOWHERE)
      const shares = [
        { used: blocks - bavail, limit: blocks },
        { used: files - ffree, limit: files },
      ].filter(({ limit }) => limit > 0)
      const [fullest] = shares.sort((a, b) => b.used / b.limit - a.used / a.limit)
      return fullest === undefined ? [] : [{ path, ...fullest }]
    }),
  )
  return all.flat()
}

const NOWHERE = { blocks: 0, bavail: 0, files: 0, ffree: 0 }

async function routesOf(tool: ToolRun): Promise<HostLook['routes'] & {}> {
  const tables = TABLES.map(String)
  // `ip` fails if the table has no route. Such a table is empty.
  const found = tables.map(async (table) => {
    const rows = await jsonFrom(tool, ['ip', '-json', '-4', 'route', 'show', 'table', table], [])
    return [table, (rows as readonly Route[]).flatMap(({ dst }) => (typeof dst === 'string' ? [dst] : []))] as const
  })
  return Object.fromEntries(await Promise.all(found))
}

interface Route {
  readonly dst?: unknown
}

// The devices of this machine with their addresses, including devices that carry nothing, such as a bridge without a
// port.

interface DeviceLook {
  readonly name: string
  readonly addresses: readonly string[]
}

/** Throws if `ip` fails. */
async function devicesOf(tool: ToolRun): Promise<readonly DeviceLook[]> {
  const rows = (await jsonFrom(tool, ['ip', '-json', 'address', 'show'])) as readonly IpDevice[]
  return rows.flatMap(({ ifname, addr_info: addresses = [] }) =>
    ifname === undefined ? [] : [{ name: ifname, addresses: addresses.flatMap(({ local }) => local ?? []) }],
  )
}

/** Returns the devices that the runtime reports, which lack devices that carry nothing. */
function carryingDevices(): readonly DeviceLook[] {
  return Object.entries(networkInterfaces()).map(([name, all = []]) => ({
    name,
    addresses: all.map(({ address }) => address),
  }))
}

/** Returns the addresses of this machine, as far as they can be read. */
export async function addressesHere(tool: ToolRun): Promise<readonly string[]> {
  const devices = await devicesOf(tool).catch((error: unknown) => {
    if (tool.signal.aborted) throw error
    return carryingDevices()
  })
  return devices.flatMap(({ addresses }) => addresses)
}

interface IpDevice {
  readonly ifname?: string
  readonly addr_info?: readonly { readonly local?: string }[]
}
