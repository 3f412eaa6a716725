/**
 * How the kernel of this machine stands, for somebody who looks and changes nothing: settings, firewalls, our routes, and
 * what may run out. What cannot be read is named, and the rest counts.
 */
import { readFile, readdir, statfs } from 'node:fs/promises'
import { networkInterfaces } from 'node:os'
import { join } from 'node:path'
import { FAMILIES, type Family } from '../../model/addresses/addresses.ts'
import {
  LANE_DEVICE_PREFIX,
  NFT_TABLE_GATEWAY,
  ROUTE_TABLE_LANES,
  ROUTE_TABLE_LANES_PUBLIC,
  ROUTE_TABLE_NODE,
  ROUTE_TABLE_NODE_PUBLIC,
} from '../../model/model.ts'
import { messageOf } from '../../runtime/runtime.ts'
import { type RunCommand, runCommand } from '../kernel.ts'
import { type DeviceSetting, deviceSettings } from '../tuning/tuning.ts'
import { type RulesetLook, parseRuleset } from './parse-ruleset.ts'

// JSON of a tool of the kernel, which may print half of it when what it lists changes meanwhile.

/** How the tools are run. */
interface ToolRun {
  readonly run: RunCommand
  readonly timeoutMs: number
  readonly signal: AbortSignal
}

const TRIES = 3

/**
 * Throws where the tool prints no JSON again and again, and where it fails; `none`, where it is given, is what failing or
 * silence means.
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
  /** Of our devices, those that are not what we set (kernel/tuning/device-settings.ts). */
  readonly deviceSettings: readonly (DeviceSetting & { readonly found: string })[]
  readonly firewall?: RulesetLook
  readonly routes?: Readonly<Record<string, readonly string[]>>
  readonly connections?: Share
  readonly disks: readonly (Share & { readonly path: string })[]
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
  /** Folders whose disks are looked at. */
  readonly folders: readonly string[]
  readonly timeoutMs: number
  readonly run?: RunCommand
  /** Default /proc. */
  readonly proc?: string
}

/** Tables and devices of ours begin with it. */
const OURS = NFT_TABLE_GATEWAY.slice(0, NFT_TABLE_GATEWAY.indexOf('_') + 1)
const TABLES = [ROUTE_TABLE_LANES, ROUTE_TABLE_LANES_PUBLIC, ROUTE_TABLE_NODE, ROUTE_TABLE_NODE_PUBLIC]
const SETTINGS = ['net/ipv4/ip_forward', 'net/ipv4/conf/all/rp_filter', 'net/ipv6/conf/all/forwarding']

/** Never rejects, but with the signal's reason. */
export async function lookAtHost(
  init: LookInit,
  signal: AbortSignal,
): Promise<{ readonly look: HostLook; readonly troubles: readonly HostTrouble[] }> {
  const { run = runCommand, timeoutMs, folders, proc = '/proc' } = init
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
  const [devices, firewall, routes, sysctls, deviceSettings, connections, disks] = await Promise.all([
    unlessTrouble('Devices', devicesOf(tool)),
    unlessTrouble('Firewall', firewallOf(tool)),
    unlessTrouble('Routes', routesOf(tool)),
    settingsOf(proc),
    changedSettings(proc),
    connectionsOf(proc),
    disksOf(folders),
  ])
  const look = {
    devices: devices ?? carryingDevices(),
    sysctls,
    deviceSettings,
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

/** A node has a device for each pod; of more than these nobody asks. */
const MOST_DEVICES = 2000

/** Of devices, whether they hand on, where they do not: of those of others there are many. */
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

/** IPv6 counts where a device of ours has it. */
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

/** Not `all`, `default` and `lo`. */
async function devicesWithSettings(proc: string, family: Family): Promise<readonly string[]> {
  const names = await readdir(join(proc, `sys/net/ipv${family}/conf`)).catch((): string[] => [])
  return names.filter((name) => !['all', 'default', 'lo'].includes(name))
}

async function valuesOf(proc: string, names: readonly string[]): Promise<(readonly [string, string])[]> {
  const found = await Promise.all(names.map(async (name) => [name, await numberText(join(proc, 'sys', name))] as const))
  return found.flatMap(([name, value]) => (value === undefined ? [] : [[name, value] as const]))
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

/** Blocks, and on file systems that count them, files: whichever is nearer to its end. */
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
  // A table without a route is none: asking for it fails.
  const found = tables.map(async (table) => {
    const rows = await jsonFrom(tool, ['ip', '-json', '-4', 'route', 'show', 'table', table], [])
    return [table, (rows as readonly Route[]).flatMap(({ dst }) => (typeof dst === 'string' ? [dst] : []))] as const
  })
  return Object.fromEntries(await Promise.all(found))
}

interface Route {
  readonly dst?: unknown
}

// Devices of this machine with their addresses, also of those that carry nothing now: a bridge without a port.

interface DeviceLook {
  readonly name: string
  readonly addresses: readonly string[]
}

/** Throws where `ip` cannot say. */
async function devicesOf(tool: ToolRun): Promise<readonly DeviceLook[]> {
  const rows = (await jsonFrom(tool, ['ip', '-json', 'address', 'show'])) as readonly IpDevice[]
  return rows.flatMap(({ ifname, addr_info: addresses = [] }) =>
    ifname === undefined ? [] : [{ name: ifname, addresses: addresses.flatMap(({ local }) => local ?? []) }],
  )
}

/** What the system's library knows: none of those that carry nothing now. */
function carryingDevices(): readonly DeviceLook[] {
  return Object.entries(networkInterfaces()).map(([name, all = []]) => ({
    name,
    addresses: all.map(({ address }) => address),
  }))
}

/** As far as they can be known. */
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
