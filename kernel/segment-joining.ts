/**
 * Joins the TCP segments that come out of a user-space tunnel before anything else looks at them (GRO, Documentation/
 * networking/segmentation-offloads.rst). The kernel's own WireGuard joins what it decrypts; a tun device hands each
 * packet on by itself, and each then takes the whole way through rules, routes and overlay. So TCP is led over a cable
 * (veth) between two ends on the same node, whose receiving end joins:
 *
 *   sealane0 ─► netdev ingress: fwd ─► sealane0-tx ═══► sealane0-rx ─► rules and routes, as one large segment
 *   sealane0 ─► everything but TCP over IPv4 ─► rules and routes
 *
 * A packet that arrives alone goes on at once; in a stream the next ones wait for HOLD_US at most. Costs one hop of the
 * time to live. Where a tool or a feature is missing, everything stays as it is: that costs speed, nothing else.
 */
import { access, readFile, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { LANE_DEVICE_PREFIX, laneCable } from '../model/kernel-ids.ts'
import type { Clock } from '../reconcile/clock.ts'
import { KernelError } from './errors.ts'
import { type ReceiveCoalescing, SysfsReceiveCoalescing } from './receive-coalescing.ts'
import { type RunCommand, runCommand } from './run-command.ts'

export interface SegmentJoining {
  /**
   * Sets joining up for a device, where it is one of user space and does not join by itself. Gives whether segments are
   * joined now, and what was done for it, one command each. Throws the signal's reason only.
   */
  join(device: string, signal: AbortSignal): Promise<Joined>
  /** Takes away what join() made for devices that are not in `keep`. Gives the commands. Throws KernelError. */
  sweep(keep: readonly string[], signal: AbortSignal): Promise<readonly string[]>
}

export interface Joined {
  readonly on: boolean
  readonly done: readonly string[]
  /** Why not, told once; undefined where there is nothing to tell. */
  readonly why?: string
}

export interface VethSegmentJoiningInit {
  /** Default /sys/class/net. */
  readonly root?: string | undefined
  readonly clock: Clock
  readonly run?: RunCommand
}

/** How long a segment may wait for the next ones. Some five packets of a lane that is busy. */
const HOLD_US = 300
/** Locally administered; the cable has two ends and no other stations. */
const RECEIVER_MAC = '0a:5e:00:00:00:02'
/** RFC 3927: never leaves the cable. */
const RECEIVER_ADDRESS = '169.254.0.1'
/** A cable takes any packet of a tunnel. */
const CABLE_MTU = '65535'
/** Rules that somebody flushed are back after this time. */
const LOOK_EVERY_MS = 30_000
const SENDING_END = new RegExp(`^(${LANE_DEVICE_PREFIX}\\d+)-tx$`)

export class VethSegmentJoining implements SegmentJoining {
  readonly #root: string
  readonly #clock: Clock
  readonly #run: RunCommand
  readonly #coalescing: ReceiveCoalescing
  /** By device: its index and that of its cable, and when the rule was last seen there, monotonic. */
  readonly #seen = new Map<string, { readonly links: string; readonly at: number }>()
  #isMissing = false

  constructor(init: VethSegmentJoiningInit) {
    this.#root = init.root ?? '/sys/class/net'
    this.#clock = init.clock
    this.#run = init.run ?? runCommand
    this.#coalescing = new SysfsReceiveCoalescing(this.#root)
  }

  async join(device: string, signal: AbortSignal): Promise<Joined> {
    if (this.#isMissing || !(await this.#has(device, 'tun_flags'))) return { on: false, done: [] }
    const { tx, rx } = laneCable(device)
    const done: string[] = []
    try {
      if (!(await this.#has(rx, 'ifindex'))) await this.#makeCable(device, done, signal)
      await this.#lead(device, done, signal)
      return { on: true, done }
    } catch (error) {
      if (signal.aborted) throw error
      // Half a cable would swallow packets.
      this.#isMissing = true
      await this.#take(device, tx, signal).catch(() => undefined)
      return { on: false, done: [], why: error instanceof Error ? error.message : String(error) }
    }
  }

  async sweep(keep: readonly string[], signal: AbortSignal): Promise<readonly string[]> {
    const done: string[] = []
    for (const name of await readdir(this.#root).catch(() => [])) {
      const device = SENDING_END.exec(name)?.[1]
      if (device === undefined || keep.includes(device)) continue
      done.push(...(await this.#take(device, name, signal)))
      this.#seen.delete(device)
    }
    return done
  }

  async #makeCable(device: string, done: string[], signal: AbortSignal): Promise<void> {
    const { tx, rx } = laneCable(device)
    const cable = `link add ${tx} mtu ${CABLE_MTU} type veth peer name ${rx} mtu ${CABLE_MTU} address ${RECEIVER_MAC}`
    await this.#must('ip', cable.split(' '), done, signal)
    // A receiver joins what comes from a device that could not have sent it in one piece.
    await this.#must('ethtool', ['-K', tx, 'tso', 'off'], done, signal)
    await this.#must('ethtool', ['-K', rx, 'gro', 'on'], done, signal)
    const hold = await this.#coalescing.hold(rx, HOLD_US)
    if (hold === undefined) throw new KernelError('EPERM', `hold segments on ${rx}`, 'gro_flush_timeout is read-only')
    done.push(hold)
    for (const end of [tx, rx]) await this.#must('ip', ['link', 'set', end, 'addrgenmode', 'none'], done, signal)
    await this.#bringUp(device, done, signal)
  }

  /** May be done again: a cable that somebody took down or cleared would swallow packets. */
  async #bringUp(device: string, done: string[], signal: AbortSignal): Promise<void> {
    const { tx, rx } = laneCable(device)
    for (const text of [
      `link set ${tx} up`,
      `link set ${rx} up`,
      // Without an address of its own, reverse path filtering would refuse whatever comes in, also when it is loose.
      `address replace ${RECEIVER_ADDRESS}/32 dev ${rx} scope link`,
      `neigh replace ${RECEIVER_ADDRESS} lladdr ${RECEIVER_MAC} dev ${tx} nud permanent`,
    ]) {
      await this.#must('ip', text.split(' '), done, signal)
    }
  }

  /** Leads TCP over the cable, unless it is. The chain goes with the device that it hangs on. */
  async #lead(device: string, done: string[], signal: AbortSignal): Promise<void> {
    const { tx } = laneCable(device)
    const links = `${await this.#index(device)} ${await this.#index(tx)}`
    const seen = this.#seen.get(device)
    const now = this.#clock.monotonic()
    const isSame = seen?.links === links
    if (isSame && now - seen.at < LOOK_EVERY_MS) return
    if (isSame) await this.#bringUp(device, [], signal)
    // A rule of an earlier cable would name a device that is no more.
    const isThere =
      isSame && (await this.#run('nft', ['list', 'chain', 'netdev', device, 'join'], { signal })).code === 0
    if (!isThere) await this.#must('nft', ['-f', '-'], done, signal, leadingTable(device, tx))
    this.#seen.set(device, { links, at: now })
  }

  async #take(device: string, tx: string, signal: AbortSignal): Promise<readonly string[]> {
    const done: string[] = []
    const rules = ['add table netdev', 'delete table netdev'].map((verb) => `${verb} ${device}\n`).join('')
    try {
      // First, for a rule that leads to nowhere swallows packets.
      await this.#must('nft', ['-f', '-'], done, signal, rules)
    } finally {
      if (await this.#has(tx, 'ifindex')) await this.#must('ip', ['link', 'del', tx], done, signal)
    }
    return done
  }

  async #must(tool: string, args: string[], done: string[], signal: AbortSignal, input?: string): Promise<void> {
    const result = await this.#run(tool, args, { signal, ...(input === undefined ? {} : { input }) })
    const text = [tool, ...args].join(' ')
    if (result.code !== 0) throw new KernelError('UNKNOWN', text, result.stderr.trim().slice(0, 300))
    done.push(input === undefined ? text : `${text}\n${input.trimEnd()}`)
  }

  #has(device: string, file: string): Promise<boolean> {
    return access(join(this.#root, device, file)).then(
      () => true,
      () => false,
    )
  }

  async #index(device: string): Promise<string> {
    return (await readFile(join(this.#root, device, 'ifindex'), 'utf8')).trim()
  }
}

function leadingTable(device: string, tx: string): string {
  return [
    `add table netdev ${device}`,
    `delete table netdev ${device}`,
    `add table netdev ${device}`,
    `add chain netdev ${device} join { type filter hook ingress device "${device}" priority 0; policy accept; }`,
    `add rule netdev ${device} join ip protocol tcp fwd ip to ${RECEIVER_ADDRESS} device "${tx}"`,
    '',
  ].join('\n')
}
