/**
 * Joins the TCP segments that come out of a user-space tunnel before further processing (GRO,
 * Documentation/networking/segmentation-offloads.rst). The WireGuard of the kernel joins what it decrypts, but a tun
 * device passes on each packet alone, and each then goes through rules, routes and overlay. So TCP is sent through a
 * veth pair on the same node, whose receiving end joins segments:
 *
 *   sealane0 ─► netdev ingress: fwd ─► sealane0-tx ═══► sealane0-rx ─► rules and routes, as one large segment
 *   sealane0 ─► everything but TCP over IPv4 ─► rules and routes
 *
 * A packet that arrives alone passes at once; in a stream, following segments wait for at most HOLD_US. The TTL
 * decreases by one more. If a tool or a feature is missing, nothing is changed, which only costs speed.
 */
import { access, readFile, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { LANE_CABLE_ADDRESS, LANE_DEVICE_PREFIX, laneCable } from '../../model/model.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { messageOf } from '../../runtime/runtime.ts'
import { KernelError, type RunCommand, runCommand } from '../kernel.ts'

export interface ReceiveCoalescing {
  /**
   * Lets the device hold segments for this many microseconds. Returns the command for what was written,
   * `echo 100000 > …`. Undefined if nothing had to be written or the kernel does not allow it here (a read-only /sys),
   * which only costs speed.
   */
  hold(device: string, microseconds: number): Promise<string | undefined>
}

/**
 * Receive coalescing: how long a device may hold a segment to join it with the next ones of the same connection
 * (`gro_flush_timeout`, Documentation/ABI/testing/sysfs-class-net). Packets come out of a user-space tunnel one by one.
 * Joined, they cross the rest of the node as one packet, and the receiver sends one acknowledgement instead of ten.
 * Only segments in the middle of a stream wait: packets with PSH, acknowledgements, UDP and ICMP pass at once.
 */
export class SysfsReceiveCoalescing implements ReceiveCoalescing {
  readonly #root: string

  constructor(root = '/sys/class/net') {
    this.#root = root
  }

  async hold(device: string, microseconds: number): Promise<string | undefined> {
    const file = join(this.#root, device, 'gro_flush_timeout')
    const present = await readFile(file, 'utf8').catch(() => undefined)
    // A value that the operator has set stays.
    if (present?.trim() !== '0') return undefined
    const nanoseconds = String(Math.round(microseconds * 1000))
    const done = await writeFile(file, nanoseconds).then(
      () => true,
      () => false,
    )
    return done ? `echo ${nanoseconds} > ${file}` : undefined
  }
}

export interface SegmentJoining {
  /**
   * Creates the veth pair of a user-space device, or repairs it. Sends no traffic through it yet. Throws KernelError
   * only on abort.
   */
  connect(device: string, signal: AbortSignal): Promise<Joining>
  /** Sends TCP traffic of the device through its veth pair, unless that is already so. Throws as connect() does. */
  lead(device: string, signal: AbortSignal): Promise<Joining>
  /**
   * Removes everything that was created for devices that are not in `keep`. Goes on after a failure. Returns the
   * commands that were run. Throws KernelError.
   */
  sweep(keep: readonly string[], signal: AbortSignal): Promise<readonly string[]>
}

export interface Joining {
  /** False if segments are not joined, or if the device itself joins them. */
  readonly on: boolean
  /** The commands that were run. */
  readonly done: readonly string[]
  /** Why segments are not joined. Logged once, when it begins. */
  readonly why?: string
}

export interface VethSegmentJoiningInit {
  /** Default /sys/class/net. */
  readonly root?: string | undefined
  readonly clock: Clock
  readonly run?: RunCommand
}

/** How long a segment may wait for the next ones. A busy lane receives about five packets in this time. */
const HOLD_US = 300
/** A locally administered address; the veth pair connects no other stations. */
const RECEIVER_MAC = '0a:5e:00:00:00:02'
/** Large enough for any packet of a tunnel. */
const CABLE_MTU = 65_535
/** What another program has flushed or cleared is in place again after at most this time. */
const LOOK_EVERY_MS = 30_000
/**
 * Retry interval after a failure, which may be temporary: a missing package or kernel module may be installed later.
 */
const RETRY_MS = 300_000
const SENDING_END = new RegExp(`^(${LANE_DEVICE_PREFIX}\\d+)-tx$`)
const OFF: Joining = { on: false, done: [] }
/** Flag of a net_device that is up. */
const IFF_UP = 1

interface Seen {
  /** Interface indexes of the device and of its sending end. */
  readonly links: string
  /** Monotonic time. */
  readonly at: number
}

export class VethSegmentJoining implements SegmentJoining {
  readonly #root: string
  readonly #clock: Clock
  readonly #run: RunCommand
  readonly #coalescing: ReceiveCoalescing
  /** By device: when its veth pair was last repaired, and when its rule was last seen. */
  readonly #whole = new Map<string, Seen>()
  readonly #led = new Map<string, Seen>()
  /** By device, monotonic time. */
  readonly #retryAt = new Map<string, number>()

  constructor(init: VethSegmentJoiningInit) {
    this.#root = init.root ?? '/sys/class/net'
    this.#clock = init.clock
    this.#run = init.run ?? runCommand
    this.#coalescing = new SysfsReceiveCoalescing(this.#root)
  }

  async connect(device: string, signal: AbortSignal): Promise<Joining> {
    if ((this.#retryAt.get(device) ?? 0) > this.#clock.monotonic() || !(await this.#has(device, 'tun_flags')))
      return OFF
    return this.#attempt(device, signal, async (done) => {
      if ((await this.#isUp(device)) && this.#isFresh(this.#whole.get(device), await this.#links(device))) return
      const { tx, rx } = laneCable(device)
      const isNew = !(await this.#has(rx, 'ifindex'))
      const texts: string[] = []
      if (isNew) {
        const peer = `type veth peer name ${rx} mtu ${CABLE_MTU} address ${RECEIVER_MAC}`
        await this.#must('ip', `link add ${tx} mtu ${CABLE_MTU} ${peer}`.split(' '), texts, signal)
      }
      await this.#makeWhole(device, texts, signal)
      this.#whole.set(device, { links: await this.#links(device), at: this.#clock.monotonic() })
      if (isNew) done.push(...texts)
    })
  }

  async lead(device: string, signal: AbortSignal): Promise<Joining> {
    return this.#attempt(device, signal, async (done) => {
      const links = await this.#links(device)
      const seen = this.#led.get(device)
      if (this.#isFresh(seen, links)) return
      // A rule for an earlier veth pair refers to a device that no longer exists.
      const isThere = seen?.links === links && (await this.#isLed(device, signal))
      if (!isThere) await this.#must('nft', ['-f', '-'], done, signal, leadingTable(device))
      this.#led.set(device, { links, at: this.#clock.monotonic() })
    })
  }

  async sweep(keep: readonly string[], signal: AbortSignal): Promise<readonly string[]> {
    const done: string[] = []
    const failures: unknown[] = []
    for (const name of await readdir(this.#root).catch(() => [])) {
      const device = SENDING_END.exec(name)?.[1]
      if (device === undefined || keep.includes(device)) continue
      await this.#take(device, done, signal).catch((error: unknown) => failures.push(error))
    }
    if (failures.length > 0) throw failures[0]
    return done
  }

  /** Removes everything on failure: half a veth pair would drop packets. */
  async #attempt(device: string, signal: AbortSignal, work: (done: string[]) => Promise<void>): Promise<Joining> {
    const done: string[] = []
    try {
      await work(done)
      return { on: true, done }
    } catch (error) {
      if (signal.aborted) throw error
      // The process of the device has ended: the next device gets a veth pair at once.
      if (!(await this.#has(device, 'tun_flags'))) return OFF
      this.#retryAt.set(device, this.#clock.monotonic() + RETRY_MS)
      const why = [messageOf(error)]
      await this.#take(device, [], signal).catch((more: unknown) => why.push(messageOf(more)))
      return { on: false, done: [], why: why.join('; ') }
    }
  }

  /** Idempotent: repairs a veth pair that is half created, or that another program has taken down or cleared. */
  async #makeWhole(device: string, done: string[], signal: AbortSignal): Promise<void> {
    const { tx, rx } = laneCable(device)
    // The receiving end only joins segments that the sending end could not have sent as one.
    await this.#must('ethtool', ['-K', tx, 'tso', 'off'], done, signal)
    await this.#must('ethtool', ['-K', rx, 'gro', 'on'], done, signal)
    const hold = await this.#coalescing.hold(rx, HOLD_US)
    if (hold !== undefined) done.push(hold)
    const held = await readFile(join(this.#root, rx, 'gro_flush_timeout'), 'utf8')
    if (Number(held) === 0)
      throw new KernelError('EPERM', `hold segments on ${rx}`, 'gro_flush_timeout cannot be written')
    for (const text of [
      `link set ${tx} addrgenmode none`,
      `link set ${rx} addrgenmode none`,
      `link set ${tx} up`,
      `link set ${rx} up`,
      // Without an address on the interface, reverse path filtering drops all incoming packets, even in loose mode.
      `address replace ${LANE_CABLE_ADDRESS}/32 dev ${rx} scope link`,
      `neigh replace ${LANE_CABLE_ADDRESS} lladdr ${RECEIVER_MAC} dev ${tx} nud permanent`,
    ]) {
      await this.#must('ip', text.split(' '), done, signal)
    }
  }

  /** Removes the rule first: a rule that forwards to a missing device drops packets. */
  async #take(device: string, done: string[], signal: AbortSignal): Promise<void> {
    const { tx } = laneCable(device)
    // The chain may have been removed with its device.
    if ((await this.#run('nft', ['list', 'table', 'netdev', device], { signal })).code === 0) {
      await this.#must('nft', ['-f', '-'], done, signal, `delete table netdev ${device}\n`)
    }
    if (await this.#has(tx, 'ifindex')) await this.#must('ip', ['link', 'del', tx], done, signal)
    this.#whole.delete(device)
    this.#led.delete(device)
  }

  async #isLed(device: string, signal: AbortSignal): Promise<boolean> {
    return (await this.#run('nft', ['list', 'chain', 'netdev', device, 'join'], { signal })).code === 0
  }

  #isFresh(seen: Seen | undefined, links: string): boolean {
    return seen?.links === links && this.#clock.monotonic() - seen.at < LOOK_EVERY_MS
  }

  async #links(device: string): Promise<string> {
    const indexes = [device, laneCable(device).tx].map((name) => readFile(join(this.#root, name, 'ifindex'), 'utf8'))
    return (await Promise.all(indexes)).map((text) => text.trim()).join()
  }

  /**
   * Checks both ends, so that an end that another program has taken down is up again in the round that this change
   * triggers.
   */
  async #isUp(device: string): Promise<boolean> {
    const { tx, rx } = laneCable(device)
    const flags = await Promise.all(
      [tx, rx].map((end) => readFile(join(this.#root, end, 'flags'), 'utf8').catch(() => '0')),
    )
    return flags.every((text) => (Number(text.trim()) & IFF_UP) !== 0)
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
}

function leadingTable(device: string): string {
  return [
    `add table netdev ${device}`,
    `delete table netdev ${device}`,
    `add table netdev ${device}`,
    `add chain netdev ${device} join { type filter hook ingress device "${device}" priority 0; policy accept; }`,
    `add rule netdev ${device} join ip protocol tcp fwd ip to ${LANE_CABLE_ADDRESS} device "${laneCable(device).tx}"`,
    '',
  ].join('\n')
}
