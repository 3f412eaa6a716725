/**
 * Checksum offload of an overlay device. A VXLAN device hands packets on with checksums that are still to be computed,
 * and the network card, or the hypervisor behind it, fills in those of the outer and the inner packet. Where one of them
 * does this wrongly, the far node drops TCP and UDP silently, while ping passes. Without `tx-checksum-ip-generic`, the
 * kernel computes the checksum of the inner packet itself before the card sees it (ethtool(8), option -K). This costs
 * speed, so it is switched off only where a fault is known, and for the overlay device only: CNIs and the machine's own
 * connections keep what they have.
 */
import { readFile, readdir, readlink } from 'node:fs/promises'
import { release as kernelRelease } from 'node:os'
import { basename, join } from 'node:path'
import type { OffloadSetting } from '../../model/model.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { KernelError, type RunCommand, runCommand } from '../kernel.ts'

/** The machine, as far as faults depend on it. */
export interface OffloadMachine {
  /** As `uname -r` prints it: `5.4.0-150-generic`. */
  readonly release: string
  /** Kernel drivers of the cards that carry the overlay. Empty if not known, as for virtual devices. */
  readonly drivers: readonly string[]
}

interface OffloadFault {
  readonly isIn: (machine: OffloadMachine) => boolean
  /** As a clause, for conditions and logs. */
  readonly why: string
}

/**
 * Published faults. Cards whose drivers refuse to offload unknown ports are not listed: mlx4 since Linux 4.8 (commit
 * a547224dceed) and be2net since 4.10 (096de2f83ebc).
 */
const FAULTS: readonly OffloadFault[] = [
  {
    // calico#4727, calico#9433, rke2#1541, kURL#5071: on ESXi, packets of other ports than its own VXLAN port arrive
    // with wrong checksums. Distributions have the offload in kernels of any version: RHEL 8.3 has Linux 4.18.
    isIn: ({ drivers }) => drivers.includes('vmxnet3'),
    why: 'network cards of VMware (vmxnet3) compute wrong checksums in VXLAN packets',
  },
  {
    // Linux commit ea64d8d6c675, felix#2811, flannel#1279: translation writes a checksum into the outer packet that is
    // to have none. It needs a translated outer packet, which another table on the node may cause.
    isIn: ({ release }) => isBefore(release, 5, 7),
    why: 'before Linux 5.7, VXLAN packets that are translated get wrong checksums',
  },
]

/** True if it is an earlier release. False if the text is no release. */
function isBefore(release: string, major: number, minor: number): boolean {
  const [, first, second] = /^(\d+)\.(\d+)/.exec(release) ?? []
  if (first === undefined || second === undefined) return false
  return Number(first) < major || (Number(first) === major && Number(second) < minor)
}

export type OffloadPlan =
  | { readonly wanted: 'on' | 'off'; readonly fault?: string }
  /** Stays as it is. */
  | { readonly wanted: 'any' }

/** Decides about the overlay device. `fault` is the known fault because of which it is to be off. Pure. */
export function planOffload(setting: OffloadSetting, machine: OffloadMachine): OffloadPlan {
  if (setting !== 'auto') return { wanted: setting }
  const faults = FAULTS.filter(({ isIn }) => isIn(machine)).map(({ why }) => why)
  return faults.length === 0 ? { wanted: 'any' } : { wanted: 'off', fault: faults.join('; ') }
}

export interface ChecksumOffload {
  /**
   * What decides about faults, where the packets leave by this device. The drivers are those of its card, or of the cards
   * behind a bond, bridge or VLAN, sorted.
   */
  machine(device: string): Promise<OffloadMachine>
  /**
   * Switches the offload of a device on or off, unless it is so already. Returns the command that was run, or undefined.
   * Looks at the kernel only if the device is another one than at the last call, or after LOOK_EVERY_MS. Throws
   * KernelError, also from memory until RETRY_MS have passed.
   */
  ensure(device: string, wanted: 'on' | 'off', signal: AbortSignal): Promise<string | undefined>
}

export interface EthtoolChecksumOffloadInit {
  /** Default /sys/class/net. */
  readonly root?: string
  readonly clock: Clock
  readonly run?: RunCommand
  /** Default: that of the running kernel. */
  readonly release?: string
}

const FEATURE = 'tx-checksum-ip-generic'
/** What another program has switched is switched back after at most this time. */
const LOOK_EVERY_MS = 30_000
/** Retry interval after a failure: a missing package may be installed later. */
const RETRY_MS = 300_000
/** How many devices may lie on top of each other: a bridge on a VLAN on a bond. */
const MAX_DEPTH = 4

interface Looked {
  /** Interface index and the wanted state. */
  readonly key: string
  /** Monotonic time. */
  readonly until: number
  readonly failure?: Error
}

/** By the tool ethtool. */
export class EthtoolChecksumOffload implements ChecksumOffload {
  readonly #root: string
  readonly #clock: Clock
  readonly #run: RunCommand
  readonly #release: string
  readonly #looked = new Map<string, Looked>()

  constructor({ root = '/sys/class/net', clock, run = runCommand, release }: EthtoolChecksumOffloadInit) {
    this.#root = root
    this.#clock = clock
    this.#run = run
    this.#release = release ?? kernelRelease()
  }

  async machine(device: string): Promise<OffloadMachine> {
    const drivers = await this.#driversBelow(device, MAX_DEPTH)
    return { release: this.#release, drivers: [...new Set(drivers)].sort() }
  }

  async #driversBelow(device: string, depth: number): Promise<readonly string[]> {
    const driver = await readlink(join(this.#root, device, 'device', 'driver')).catch(() => undefined)
    if (driver !== undefined) return [basename(driver)]
    const files = depth === 0 ? [] : await readdir(join(this.#root, device)).catch(() => [])
    const lower = files.filter((name) => name.startsWith('lower_')).map((name) => name.slice('lower_'.length))
    return (await Promise.all(lower.map((name) => this.#driversBelow(name, depth - 1)))).flat()
  }

  async ensure(device: string, wanted: 'on' | 'off', signal: AbortSignal): Promise<string | undefined> {
    const index = await readFile(join(this.#root, device, 'ifindex'), 'utf8').catch(() => '')
    const key = `${index.trim()} ${wanted}`
    const looked = this.#looked.get(device)
    const now = this.#clock.monotonic()
    if (looked?.key === key && now < looked.until) {
      if (looked.failure !== undefined) throw looked.failure
      return undefined
    }
    try {
      const done = await this.#switch(device, wanted, signal)
      this.#looked.set(device, { key, until: now + LOOK_EVERY_MS })
      return done
    } catch (error) {
      const failure = error instanceof Error ? error : new Error(String(error))
      if (!signal.aborted) this.#looked.set(device, { key, until: now + RETRY_MS, failure })
      throw failure
    }
  }

  async #switch(device: string, wanted: 'on' | 'off', signal: AbortSignal): Promise<string | undefined> {
    const { text, stdout } = await this.#ethtool(['-k', device], signal)
    const [, state, fixed] = new RegExp(`^\\s*${FEATURE}: (on|off)( \\[fixed\\])?`, 'm').exec(stdout) ?? []
    if (state === undefined) throw new KernelError('EOPNOTSUPP', text, `${device} has no ${FEATURE}`)
    if (state === wanted) return undefined
    const change = ['-K', device, FEATURE, wanted]
    if (fixed !== undefined) throw new KernelError('EOPNOTSUPP', ['ethtool', ...change].join(' '), 'the state is fixed')
    return (await this.#ethtool(change, signal)).text
  }

  async #ethtool(
    args: readonly string[],
    signal: AbortSignal,
  ): Promise<{ readonly text: string; readonly stdout: string }> {
    const text = ['ethtool', ...args].join(' ')
    const { code, stdout, stderr } = await this.#run('ethtool', args, { signal })
    if (code !== 0) throw new KernelError('UNKNOWN', text, stderr.trim().slice(0, 300))
    return { text, stdout }
  }
}
