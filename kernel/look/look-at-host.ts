/**
 * How the kernel of this machine stands, for somebody who looks and changes nothing: settings, firewalls, our routes, and
 * what may run out. What cannot be read is named, and the rest counts.
 */
import { readFile, readdir, statfs } from 'node:fs/promises'
import { join } from 'node:path'
import {
  NFT_TABLE_GATEWAY,
  ROUTE_TABLE_LANES,
  ROUTE_TABLE_LANES_PUBLIC,
  ROUTE_TABLE_NODE,
  ROUTE_TABLE_NODE_PUBLIC,
} from '../../model/kernel-ids.ts'
import { messageOf } from '../../runtime/thrown.ts'
import { type RunCommand, runCommand } from '../run-command.ts'
import { type DeviceLook, carryingDevices, devicesOf } from './devices.ts'
import { type ToolRun, jsonFrom } from './json-from.ts'
import { type RulesetLook, parseRuleset } from './parse-ruleset.ts'

export interface HostLook {
  readonly devices: readonly DeviceLook[]
  readonly sysctls: Readonly<Record<string, string>>
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
  const [devices, firewall, routes, sysctls, connections, disks] = await Promise.all([
    unlessTrouble('Devices', devicesOf(tool)),
    unlessTrouble('Firewall', firewallOf(tool)),
    unlessTrouble('Routes', routesOf(tool)),
    settingsOf(proc),
    connectionsOf(proc),
    disksOf(folders),
  ])
  const look = {
    devices: devices ?? carryingDevices(),
    sysctls,
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

async function settingsOf(proc: string): Promise<Readonly<Record<string, string>>> {
  const devices = await readdir(join(proc, 'sys/net/ipv4/conf')).catch((): string[] => [])
  const ours = devices.filter((name) => name.startsWith('sealane')).map((name) => `net/ipv4/conf/${name}/rp_filter`)
  const found = await Promise.all(
    [...SETTINGS, ...ours].map(async (name) => [name, await numberText(join(proc, 'sys', name))] as const),
  )
  return Object.fromEntries(found.flatMap(([name, value]) => (value === undefined ? [] : [[name, value]])))
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
