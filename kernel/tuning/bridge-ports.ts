/**
 * The ports of Linux bridges: behind which of them a pod is, and whether the bridge may send a frame back out of it
 * (hairpin mode, `BR_HAIRPIN_MODE`). With net/bridge/bridge-nf-call-iptables the bridge forwards a connection that was
 * balanced to its own caller, instead of routing it, so that it needs the mode. A file of sysfs for each port
 * (Documentation/ABI/testing/sysfs-class-net, `brport/`), the forwarding table (`brforward`, struct __fdb_entry of
 * linux/if_bridge.h), and /proc/net/arp.
 */
import { access, readFile, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { KernelError } from '../kernel.ts'

export interface BridgePort {
  readonly name: string
  /** The number of the device. A port that is made again has another. */
  readonly index: number
  readonly hairpin: boolean
}

export interface BridgePorts {
  /**
   * The port behind which each IPv4 address was heard last. Left out are addresses that the machine has not heard of
   * lately, and those behind a port that is hardware, where other machines are. Never throws.
   */
  behind(addresses: ReadonlySet<string>): Promise<ReadonlyMap<string, BridgePort>>
  /** Undefined if there is no such port. */
  port(name: string): Promise<BridgePort | undefined>
  /** Throws KernelError. */
  setHairpin(name: string, on: boolean): Promise<void>
}

const FDB_ENTRY_BYTES = 16

export class SysfsBridgePorts implements BridgePorts {
  readonly #root: string
  readonly #arp: string

  constructor(root = '/sys/class/net', arp = '/proc/net/arp') {
    this.#root = root
    this.#arp = arp
  }

  async behind(addresses: ReadonlySet<string>): Promise<ReadonlyMap<string, BridgePort>> {
    const found = new Map<string, BridgePort>()
    const neighbours = parseArp((await readIfThere(this.#arp)) ?? '').filter(({ address }) => addresses.has(address))
    for (const bridge of new Set(neighbours.map(({ device }) => device))) {
      const behind = await this.#forwarding(bridge)
      for (const { address, mac, device } of neighbours) {
        const name = device === bridge ? behind.get(mac) : undefined
        const port = name === undefined || (await this.#isHardware(name)) ? undefined : await this.port(name)
        if (port !== undefined) found.set(address, port)
      }
    }
    return found
  }

  async port(name: string): Promise<BridgePort | undefined> {
    const mode = await readIfThere(this.#hairpinFile(name))
    const index = Number(await readIfThere(join(this.#root, name, 'ifindex')))
    return mode === undefined || !Number.isInteger(index) ? undefined : { name, index, hairpin: mode.trim() === '1' }
  }

  async setHairpin(name: string, on: boolean): Promise<void> {
    try {
      // r+ never creates a file.
      await writeFile(this.#hairpinFile(name), on ? '1' : '0', { flag: 'r+' })
    } catch (error) {
      throw failed(hairpinCommand(name, on), error)
    }
  }

  /** The port of each MAC address that the bridge has learned. */
  async #forwarding(bridge: string): Promise<ReadonlyMap<string, string>> {
    const names = await readdir(join(this.#root, bridge, 'brif')).catch(() => [])
    const numbers = await Promise.all(
      names.map(
        async (name) => [Number(await readIfThere(join(this.#root, name, 'brport', 'port_no'))), name] as const,
      ),
    )
    const byNumber = new Map(numbers)
    const table = await readFile(join(this.#root, bridge, 'brforward')).catch(() => Buffer.alloc(0))
    return new Map(
      parseForwarding(table).flatMap(({ mac, port }) => {
        const name = byNumber.get(port)
        return name === undefined ? [] : [[mac, name] as const]
      }),
    )
  }

  async #isHardware(name: string): Promise<boolean> {
    return access(join(this.#root, name, 'device')).then(
      () => true,
      () => false,
    )
  }

  #hairpinFile(name: string): string {
    return join(this.#root, name, 'brport', 'hairpin_mode')
  }
}

export function hairpinCommand(name: string, on: boolean): string {
  return `bridge link set dev ${name} hairpin ${on ? 'on' : 'off'}`
}

/** The addresses of machines, without those of the bridge itself. Pure. */
export function parseForwarding(table: Buffer): readonly { readonly mac: string; readonly port: number }[] {
  const count = Math.floor(table.length / FDB_ENTRY_BYTES)
  return Array.from({ length: count }, (_, i) => table.subarray(i * FDB_ENTRY_BYTES, (i + 1) * FDB_ENTRY_BYTES))
    .filter((entry) => entry[7] === 0)
    .map((entry) => ({
      mac: [...entry.subarray(0, 6)].map((octet) => octet.toString(16).padStart(2, '0')).join(':'),
      port: entry.readUInt8(6) | (entry.readUInt8(12) << 8),
    }))
}

interface ArpEntry {
  readonly address: string
  readonly mac: string
  readonly device: string
}

/** The complete entries of /proc/net/arp (proc_pid_net(5)). Pure. */
export function parseArp(text: string): readonly ArpEntry[] {
  return text.split('\n').flatMap((line) => {
    const [address = '', , flags, mac = '', , device = ''] = line.trim().split(/\s+/)
    const isComplete = (Number(flags) & 2) !== 0
    return isComplete && device !== '' ? [{ address, mac: mac.toLowerCase(), device }] : []
  })
}

async function readIfThere(path: string): Promise<string | undefined> {
  return readFile(path, 'utf8').catch(() => undefined)
}

function failed(operation: string, cause: unknown): KernelError {
  const code = cause instanceof Error && 'code' in cause ? String(cause.code) : ''
  if (code === 'ENOENT' || code === 'ENOTDIR') return new KernelError('ENODEV', operation, 'no such port', { cause })
  if (code === 'EACCES' || code === 'EPERM' || code === 'EROFS') {
    return new KernelError('EPERM', operation, code === 'EROFS' ? '/sys is read-only here' : 'not permitted', { cause })
  }
  return new KernelError('UNKNOWN', operation, cause instanceof Error ? cause.message : 'failed', { cause })
}
