/** Certificates, a running fake broker and clients for it, all on loopback. */
import type { ClusterId } from '../../model/ids.ts'
import type { BrokerClient } from '../../protocol/broker-client.ts'
import { createKey } from '../../protocol/identity/keys.ts'
import {
  type Identity,
  createCa,
  createCsr,
  createServerCertificate,
  issueMemberCertificate,
} from '../../protocol/identity/x509.ts'
import { type ClientLimits, connectBroker } from '../../protocol/transport/grpc-client.ts'
import { type BrokerServer, type ServeBrokerInit, serveBroker } from '../../protocol/transport/grpc-server.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import type { Logger } from '../../runtime/logging/logger.ts'
import { FakeBroker } from './fake-broker.ts'

export const clock = new SystemClock()

export const silent: Logger = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
  child: () => silent,
}

export interface Authority {
  readonly clusterset: string
  readonly ca: Identity
  readonly server: Identity
}

export async function authority(clusterset: string): Promise<Authority> {
  const nowMs = clock.now()
  const ca = await createCa({ clusterset, key: createKey(), nowMs })
  const server = await createServerCertificate(ca, { clusterset, key: createKey(), nowMs, hosts: ['127.0.0.1'] })
  return { clusterset, ca, server }
}

/** The identity of a member; `agoMs` shifts it into the past. */
export async function member(by: Authority, cluster: string, agoMs = 0, validMs?: number): Promise<Identity> {
  const key = createKey()
  const certificate = await issueMemberCertificate(by.ca, {
    clusterset: by.clusterset,
    cluster: cluster as ClusterId,
    csr: await createCsr(key),
    nowMs: clock.now() - agoMs,
    ...(validMs === undefined ? {} : { validMs }),
  })
  return { certificate, key }
}

export interface Site {
  readonly authority: Authority
  readonly api: FakeBroker
  readonly server: BrokerServer
  readonly address: string
  client(
    identity?: Identity,
    init?: { ca?: Uint8Array; address?: string; limits?: Partial<ClientLimits>; processMark?: string },
  ): BrokerClient
  close(): Promise<void>
}

export async function startSite(
  by: Authority,
  init: Partial<Pick<ServeBrokerInit, 'limits' | 'listen' | 'logger' | 'metrics' | 'onFailed' | 'shared'>> = {},
): Promise<Site> {
  const api = new FakeBroker()
  const server = await serveBroker({
    api,
    tls: { ...by.server, ca: [by.ca.certificate], clusterset: by.clusterset },
    listen: { host: '127.0.0.1', port: 0 },
    clock,
    logger: silent,
    ...init,
  })
  const clients: BrokerClient[] = []
  const address = `127.0.0.1:${server.address.port}`
  return {
    authority: by,
    api,
    server,
    address,
    client(identity, options = {}) {
      const client = connectBroker({
        addresses: [options.address ?? address],
        clusterset: by.clusterset,
        ca: [options.ca ?? by.ca.certificate],
        ...(identity === undefined ? {} : { identity }),
        clock,
        logger: silent,
        ...(options.limits === undefined ? {} : { limits: options.limits }),
        ...(options.processMark === undefined ? {} : { processMark: options.processMark }),
      })
      clients.push(client)
      return client
    },
    async close() {
      for (const client of clients) client.close()
      await server.close()
    },
  }
}
