/** /proc/sys in memory. Only the settings that a test provides exist. */
import { KernelError } from '../kernel.ts'
import { type Sysctl, sysctlPath } from '../tuning/tuning.ts'

export class FakeSysctl implements Sysctl {
  readonly #settings = new Map<string, string>()

  /** Settings by name, in either form. */
  constructor(settings: Readonly<Record<string, string>> = { 'net.ipv4.ip_forward': '0' }) {
    for (const [name, value] of Object.entries(settings)) this.provide(name, value)
  }

  /** Creates a setting, as a new device does. */
  provide(name: string, value: string): void {
    this.#settings.set(sysctlPath(name), value)
  }

  /** Creates the settings of a new network device: net/ipv4/conf/DEVICE/… */
  provideDevice(device: string): void {
    for (const [key, value] of Object.entries(DEVICE_SETTINGS)) this.provide(`net/ipv4/conf/${device}/${key}`, value)
  }

  async read(name: string): Promise<string | undefined> {
    await Promise.resolve()
    return this.#settings.get(sysctlPath(name))
  }

  async write(name: string, value: string): Promise<void> {
    await Promise.resolve()
    const path = sysctlPath(name)
    if (!this.#settings.has(path)) throw new KernelError('ENOENT', `sysctl -w ${name}=${value}`, 'no such setting')
    if (!/^[\w. \t-]+$/.test(value)) throw new KernelError('EINVAL', `sysctl -w ${name}`, 'not a value')
    this.#settings.set(path, value)
  }

  /** Returns `sysctl -a`, sorted. */
  toString(): string {
    return [...this.#settings]
      .map(([path, value]) => `${path} = ${value}`)
      .sort()
      .join('\n')
  }
}

const DEVICE_SETTINGS: Readonly<Record<string, string>> = {
  rp_filter: '0',
  forwarding: '0',
  accept_redirects: '1',
  secure_redirects: '1',
  send_redirects: '1',
  accept_local: '0',
  accept_source_route: '0',
  proxy_arp: '0',
  route_localnet: '0',
  src_valid_mark: '0',
}
