/** A site whose hub serves its folder on loopback, and nodes of it, for the tests of the driver and of attacks. */
import { join } from 'node:path'
import type { Test } from 'tap'
import { HubStore } from '../../../compose/hub/hub-store.ts'
import type { FileApi } from '../../../kubeapi/files/file-api.ts'
import type { NodeFile } from '../../../kubeapi/files/node-file.ts'
import { removeUserObject, writeUserObject } from '../../../kubeapi/files/user/user-objects.ts'
import { HubConnection, type NodeTls } from '../../../kubeapi/remote/hub-connection.ts'
import { type Hub, type HubDeps, openHub } from '../../../kubeapi/remote/hub-server.ts'
import { RemoteApi, type RemoteApiInit } from '../../../kubeapi/remote/remote-api.ts'
import type { Kind, KubeObject } from '../../../model/objects.ts'
import { createCsr, createKey, keyToPem } from '../../../protocol/identity/identity.ts'
import { HUB_SERVER_NAME } from '../../../protocol/identity/site-certificates.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { freePort } from '../../support/free-port.ts'
import { FileSite } from '../files/file-site.ts'

export const SITE = 'milano'
export const SITE_TEXT = 'kind: Site\n'

export interface Caller {
  readonly key: string
  readonly cert: string
}

export interface HubSiteInit {
  /** What nodes may not write; by default as in the product. */
  readonly refuse?: HubDeps['refuse']
  readonly siteText?: string
}

export class HubSite {
  readonly site: FileSite
  readonly store: HubStore
  readonly logger = new CapturingLogger()
  /** The driver on the folder, beside the hub. */
  readonly files: FileApi
  readonly #t: Test
  readonly #refuse: HubDeps['refuse']
  readonly #siteText: string
  #hub: Hub | undefined
  port = 0

  private constructor(t: Test, site: FileSite, store: HubStore, init: HubSiteInit) {
    this.#t = t
    this.site = site
    this.store = store
    this.files = site.open()
    this.#refuse = init.refuse
    this.#siteText = init.siteText ?? SITE_TEXT
  }

  static async open(t: Test, init: HubSiteInit = {}): Promise<HubSite> {
    const site = new FileSite(t)
    const store = await HubStore.open(new SystemClock(), { state: site.state, site: SITE })
    const hub = new HubSite(t, site, store, init)
    // The same port for each start of the hub: no other program is given one of these while it is away.
    hub.port = await freePort()
    await hub.start()
    t.teardown(() => hub.stop())
    return hub
  }

  async start(): Promise<void> {
    const { files, store, logger } = this
    const deps: HubDeps = {
      ...{ clock: new SystemClock(), logger, api: files, leases: files.leases },
      readSite: () => Promise.resolve(this.#siteText),
      identify: (certificate) => store.identify(certificate),
      enrol: (request) => store.enrol(request),
      renew: (node, csr) => store.renew(node, csr),
      ...(this.#refuse === undefined ? {} : { refuse: this.#refuse }),
    }
    const { hub, port } = await openHub(deps, { host: '127.0.0.1', port: this.port, tls: await store.serverTls() })
    this.#hub = hub
    this.port = port
  }

  get hub(): Hub {
    if (this.#hub === undefined) throw new Error('the hub is stopped')
    return this.#hub
  }

  async stop(): Promise<void> {
    await this.#hub?.close()
    this.#hub = undefined
  }

  /** A key, and the certificate that the hub's store gives for it. */
  async enrolled(node: string, isHub = false): Promise<Caller> {
    const token = await this.store.invite(node, 60_000, isHub)
    const key = createKey()
    const csr = Buffer.from(await createCsr(key)).toString('base64')
    return { key: keyToPem(key), cert: await this.store.enrol({ token, node, csr }) }
  }

  connection(own: Caller | undefined, tls: Partial<NodeTls> = {}): HubConnection {
    const ca = this.store.certificateAuthority
    const connection = new HubConnection(
      { clock: new SystemClock(), logger: this.logger },
      {
        addresses: [{ host: '127.0.0.1', port: this.port }],
        tls: () => ({ ca, own, serverName: HUB_SERVER_NAME, ...tls }),
      },
    )
    this.#t.teardown(() => connection.close())
    return connection
  }

  async node(name: string, init: RemoteApiInit = {}): Promise<RemoteApi> {
    return this.open(await this.enrolled(name), init)
  }

  open(caller: Caller, init: RemoteApiInit = {}): RemoteApi {
    const deps = { clock: new SystemClock(), logger: this.logger, connection: this.connection(caller) }
    const api = new RemoteApi(deps, init)
    this.#t.teardown(() => api.close())
    return api
  }

  async put(object: KubeObject): Promise<void> {
    await writeUserObject(this.site.objects, object)
  }

  drop(kind: Kind, name: string, namespace?: string): void {
    removeUserObject(this.site.objects, kind, name, namespace)
  }

  nodeFile(node: string, token: string): NodeFile {
    const { folder } = this.site
    return {
      ...{ node, token, site: SITE, file: join(folder, `${node}.yaml`), state: join(folder, node) },
      hubs: [{ host: '127.0.0.1', port: this.port }],
      certificateAuthority: this.store.certificateAuthority,
    }
  }
}
