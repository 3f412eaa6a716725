/** A whole site as a user starts it: the command line, real processes and a real kernel, in a namespace of its own. */
import type { ChildProcess } from 'node:child_process'
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import type { Test } from 'tap'
import { FileApi } from '../../../kubeapi/files/file-api.ts'
import { LANE_MARK, ROUTE_PROTOCOL, ROUTE_TABLE_NODE, RULE_NODE } from '../../../model/kernel-ids.ts'
import type { Cluster } from '../../../model/objects.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { SiteFolder } from '../../cli/site-folder.ts'
import type { Netns } from '../../support/netns.ts'
import { clusterObject } from '../../support/objects/cluster-objects.ts'
import { BROKER, SEALANE } from './hub-broker.ts'

/** A site of one node in a namespace of its own, 192.168.<n>.10, whose router is the hub, 192.168.<n>.1. */
export class NetnsSite {
  readonly id: string
  readonly ns: Netns
  readonly folder: SiteFolder
  said = ''
  readonly #n: number
  #process: ChildProcess | undefined

  constructor(t: Test, id: string, ns: Netns, n: number) {
    this.id = id
    this.ns = ns
    this.#n = n
    this.folder = new SiteFolder(t, id)
    const pods = `[10.${40 + n}.0.0/16, 'fd00:${40 + n}::/48']`
    this.folder.write('site.yaml', this.folder.read('site.yaml').replace('[10.42.0.0/16]', pods))
    this.folder.write(
      'objects/nodes.yaml',
      `apiVersion: v1\nkind: Node\nmetadata: { name: gw }\nstatus:\n  addresses:\n` +
        [`192.168.${n}.10`, `fd00:${n}::a`].map((at) => `    - { type: InternalIP, address: '${at}' }\n`).join(''),
    )
    // `ip netns exec` mounts this file as /etc/resolv.conf of the programs that it runs.
    mkdirSync(`/etc/netns/${ns.name}`, { recursive: true })
    writeFileSync(`/etc/netns/${ns.name}/resolv.conf`, 'nameserver 9.9.9.9\n')
    t.teardown(() => rmSync(`/etc/netns/${ns.name}`, { recursive: true, force: true }))
  }

  async wire(hub: Netns): Promise<void> {
    const n = this.#n
    const ip = (ns: Netns, text: string): Promise<string> => ns.exec('ip', text.split(' '))
    for (const ns of [hub, this.ns]) await ns.exec('sysctl', ['-qw', 'net.ipv6.conf.default.accept_dad=0'])
    await ip(this.ns, `link add lan type veth peer name to-${this.id} netns ${hub.name}`)
    await ip(hub, `address add 192.168.${n}.1/24 dev to-${this.id}`)
    await ip(hub, `link set to-${this.id} up`)
    await ip(this.ns, `address add 192.168.${n}.10/24 dev lan`)
    await ip(this.ns, `address add fd00:${n}::a/64 dev lan`)
    await ip(this.ns, 'link set lan up')
    await ip(this.ns, `route add default via 192.168.${n}.1`)
  }

  async join(token: string): Promise<void> {
    await this.ns.exec(SEALANE, ['join', '--site', this.folder.file, '--token-file', '-'], { input: token })
  }

  /** Applies the object and the kernel routes as the agent and the routeagent of the last release left them. */
  async takeInAsBefore(spec: Cluster['spec']): Promise<void> {
    await this.withObjects((objects) => objects.apply(clusterObject(spec)))
    const rule = ['not', 'fwmark', String(LANE_MARK), 'priority', String(RULE_NODE), 'lookup', String(ROUTE_TABLE_NODE)]
    await this.ns.exec('ip', ['rule', 'add', ...rule, 'protocol', String(ROUTE_PROTOCOL)])
    for (const range of spec.podCIDRs) {
      const route = ['unreachable', range, 'table', String(ROUTE_TABLE_NODE), 'protocol', String(ROUTE_PROTOCOL)]
      await this.ns.exec('ip', ['route', 'add', ...route])
    }
  }

  start(): void {
    const parts = ['--component', 'agent', '--component', 'routeagent']
    const child = this.ns.spawn(SEALANE, ['up', '--site', this.folder.file, '--node', 'gw', ...parts])
    for (const stream of [child.stdout, child.stderr]) stream?.on('data', (text: Buffer) => (this.said += String(text)))
    this.#process = child
  }

  stop(): void {
    this.#process?.kill('SIGTERM')
  }

  async hearsBroker(): Promise<boolean> {
    return (await this.ns.tryExec('ping', ['-c', '1', '-W', '1', BROKER])).code === 0
  }

  /** Each other cluster that the site knows, with its addresses: `mallory 244.0.0.0/28`. */
  known(): Promise<string[]> {
    return this.withObjects((objects) =>
      Promise.resolve(
        objects
          .cache('Cluster')
          .list()
          .filter(({ spec }) => spec.id !== this.id)
          .map(({ spec }) => `${spec.id} ${(spec.globalCIDRs.length > 0 ? spec.globalCIDRs : spec.podCIDRs).join()}`)
          .sort(),
      ),
    )
  }

  async routes(): Promise<string> {
    const show = (family: string): Promise<string> =>
      this.ns.tryExec('ip', [family, 'route', 'show', 'table', String(ROUTE_TABLE_NODE)]).then(({ stdout }) => stdout)
    return (await show('-4')) + (await show('-6'))
  }

  async withObjects<T>(work: (objects: FileApi) => Promise<T>): Promise<T> {
    const init = { objects: this.folder.path('objects'), state: this.folder.path('state') }
    const objects = new FileApi({ clock: new SystemClock(), logger: new CapturingLogger() }, init)
    try {
      await objects.cache('Cluster').whenSynced(AbortSignal.timeout(5000))
      return await work(objects)
    } finally {
      await objects.close()
    }
  }
}
