import t from 'tap'
import { CertificateRenewal } from '../../../../agent/link/certificate-renewal.ts'
import { agentMetrics } from '../../../../agent/loop/metrics.ts'
import { parseClusterId } from '../../../../model/ids.ts'
import { type BrokerClient, BrokerUnreachableError } from '../../../../protocol/broker-client.ts'
import { createKey } from '../../../../protocol/identity/keys.ts'
import {
  type MemberIdentity,
  folderIdentity,
  readMemberIdentity,
  writeMemberIdentity,
} from '../../../../protocol/membership/member-files.ts'
import { readCertificate } from '../../../../protocol/identity/certificates.ts'
import { createCa, createCsr, issueMemberCertificate } from '../../../../protocol/identity/x509.ts'
import { FakeClock } from '../../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../../../runtime/metrics/prometheus-metrics.ts'
import { eventually } from '../../../support/eventually.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'

const HOUR = 3_600_000

t.test('a certificate of a day is renewed after two thirds, and again', async (t) => {
  const clock = new FakeClock()
  const start = clock.now()
  const directory = temporaryFolder(t)
  const cluster = parseClusterId('milano')
  const ca = await createCa({ clusterset: 'default', key: createKey(), nowMs: clock.now() })
  const issue = (csr: Uint8Array): Promise<Uint8Array> =>
    issueMemberCertificate(ca, { clusterset: 'default', cluster, csr, nowMs: clock.now() })
  const key = createKey()
  const identity: MemberIdentity = {
    cluster,
    clusterset: 'default',
    brokerAddresses: ['127.0.0.1:7443'],
    observedAddress: '127.0.0.1',
    key,
    certificate: await issue(await createCsr(key)),
    caBundle: [ca.certificate],
  }
  await writeMemberIdentity(directory, identity)

  let online = true
  const asked: number[] = []
  const client = {
    renew: async (csr: Uint8Array) => {
      asked.push(clock.now() - start)
      if (!online) throw new BrokerUnreachableError('connection refused')
      return { certificate: await issue(csr), caBundle: [ca.certificate] }
    },
  } as unknown as BrokerClient
  const renewed: MemberIdentity[] = []
  const logger = new CapturingLogger()
  const metrics = createMetrics('agent')
  const renewal = new CertificateRenewal(
    { clock, logger, agentMetrics: agentMetrics(metrics), client: () => client, onRenewed: (one) => renewed.push(one) },
    { store: folderIdentity(directory), identity },
  )
  const stop = new AbortController()
  const done = renewal.run(stop.signal)

  await clock.advance(15.9 * HOUR)
  t.same(asked, [], 'not before its time')
  await clock.advance(0.2 * HOUR)
  await eventually(() => renewed.length === 1, { say: 'renewed' })
  t.ok(asked[0]! >= 15.9 * HOUR && asked[0]! <= 16.1 * HOUR, 'at two thirds')
  const onDisk = await readMemberIdentity(directory)
  t.same(onDisk?.certificate, renewed[0]?.certificate, 'kept on disk')
  t.ok(readCertificate(renewed[0]!.certificate).notAfterMs > clock.now() + 23 * HOUR)
  t.match(await metrics.text(), /sealane_agent_certificate_expiry_timestamp_seconds\S* \d+/)
  t.equal(renewal.problem(), undefined)

  online = false
  // Signing takes real time, so the clock moves step by step and waits for each attempt.
  const attempts = async (hours: number): Promise<void> => {
    const end = clock.now() + hours * HOUR
    while (clock.now() < end) {
      const before = asked.length
      await clock.advance(0.25 * HOUR)
      await eventually(() => clock.pending('sleep').length > 0, { intervalMs: 1, say: `an attempt after ${before}` })
    }
  }
  await attempts(18)
  const inTime = asked.length
  t.ok(inTime > 3, 'tries on while the broker is away')
  t.match(renewal.problem(), /^the certificate expires at 2026-01-02T\d\d:\d\d:\d\d.000Z: connection refused$/)
  await attempts(8)
  t.ok(asked.length > inTime, 'also afterwards')
  t.match(
    renewal.problem(),
    /^the certificate expired at 2026-01-02T\d\d:\d\d:\d\d.000Z; it is renewed when the broker answers: connection refused$/,
  )
  t.match(logger.lines.at(-1), {
    level: 'error',
    message: 'certificate renewal failed and the certificate has expired',
  })
  online = true
  await attempts(1)
  await eventually(() => renewed.length === 2, { say: 'renewed late' })
  t.equal(renewal.problem(), undefined)
  stop.abort()
  await clock.advance(1)
  await done
})

t.test('an answer that comes after the end is not written: the identity may be gone', async (t) => {
  const clock = new FakeClock()
  const directory = temporaryFolder(t)
  const cluster = parseClusterId('milano')
  const key = createKey()
  const ca = await createCa({ clusterset: 'default', key: createKey(), nowMs: clock.now() })
  const csr = await createCsr(key)
  const issued = { clusterset: 'default', cluster, csr, nowMs: clock.now() - 20 * HOUR }
  const certificate = await issueMemberCertificate(ca, issued)
  const caBundle = [ca.certificate]
  const files = { brokerAddresses: ['127.0.0.1:7443'], observedAddress: '127.0.0.1', clusterset: 'default' }
  const stop = new AbortController()
  const client = {
    renew: async () => {
      stop.abort()
      return { certificate, caBundle }
    },
  } as unknown as BrokerClient
  const renewal = new CertificateRenewal(
    {
      clock,
      logger: new CapturingLogger(),
      agentMetrics: agentMetrics(createMetrics('agent')),
      client: () => client,
      onRenewed: () => t.fail('nothing is to be used any more'),
    },
    { store: folderIdentity(directory), identity: { cluster, key, certificate, caBundle, ...files } },
  )
  await renewal.run(stop.signal)
  t.equal(await readMemberIdentity(directory), undefined)
})

t.test('one that has ended: an identity that is stored in its place is used', async (t) => {
  const clock = new FakeClock()
  const directory = temporaryFolder(t)
  const ca = await createCa({ clusterset: 'default', key: createKey(), nowMs: clock.now() })
  const made = async (id: string, nowMs: number): Promise<MemberIdentity> => {
    const [cluster, key] = [parseClusterId(id), createKey()]
    const issued = { clusterset: 'default', cluster, csr: await createCsr(key), nowMs }
    const certificate = await issueMemberCertificate(ca, issued)
    const files = { brokerAddresses: ['127.0.0.1:7443'], observedAddress: '127.0.0.1', clusterset: 'default' }
    return { cluster, key, certificate, caBundle: [ca.certificate], ...files }
  }
  const ended = await made('milano', clock.now() - 25 * HOUR)
  await writeMemberIdentity(directory, ended)
  const client = { renew: () => Promise.reject(new Error('the certificate expired')) } as unknown as BrokerClient
  const used: Uint8Array[] = []
  const logger = new CapturingLogger()
  const renewal = new CertificateRenewal(
    {
      clock,
      logger,
      agentMetrics: agentMetrics(createMetrics('agent')),
      client: () => client,
      onRenewed: ({ certificate }) => used.push(certificate),
    },
    { store: folderIdentity(directory), identity: ended },
  )
  const stop = new AbortController()
  const done = renewal.run(stop.signal)
  const waits = (): Promise<unknown> => eventually(() => clock.pending('sleep').length > 0, { intervalMs: 1 })
  await waits()
  const since = new Date(clock.now() - HOUR).toISOString()
  t.equal(
    renewal.problem(),
    `the certificate expired at ${since}; it is renewed when the broker answers: the certificate expired`,
  )
  await writeMemberIdentity(directory, await made('paris', clock.now()))
  await clock.advance(5000)
  await waits()
  t.same(used, [], 'not that of another cluster')
  const anew = await made('milano', clock.now())
  await writeMemberIdentity(directory, anew)
  await clock.advance(5000)
  await eventually(() => used.length > 0, { intervalMs: 1 })
  t.same(used, [anew.certificate])
  t.equal(renewal.problem(), undefined)
  t.match(logger.lines.at(-1), { level: 'info', message: 'the cluster has joined again' })
  stop.abort()
  await clock.advance(1)
  await done
})

t.test(
  'a later certificate that is stored is used in the place of the own one, and an earlier one is not',
  async (t) => {
    const clock = new FakeClock()
    const directory = temporaryFolder(t)
    const [cluster, key] = [parseClusterId('milano'), createKey()]
    const ca = await createCa({ clusterset: 'default', key: createKey(), nowMs: clock.now() })
    const made = async (nowMs: number, renews?: string): Promise<MemberIdentity> => {
      const issued = { clusterset: 'default', cluster, csr: await createCsr(key), nowMs }
      const certificate = await issueMemberCertificate(ca, renews === undefined ? issued : { ...issued, renews })
      const files = { brokerAddresses: ['127.0.0.1:7443'], observedAddress: '127.0.0.1', clusterset: 'default' }
      return { cluster, key, certificate, caBundle: [ca.certificate], ...files }
    }
    const mine = await made(clock.now() - HOUR)
    await writeMemberIdentity(directory, mine)
    let asked = 0
    const client = { renew: () => Promise.reject(new Error(`asked ${(asked += 1)}`)) } as unknown as BrokerClient
    const used: Uint8Array[] = []
    const logger = new CapturingLogger()
    const renewal = new CertificateRenewal(
      {
        clock,
        logger,
        agentMetrics: agentMetrics(createMetrics('agent')),
        client: () => client,
        onRenewed: ({ certificate }) => used.push(certificate),
      },
      { store: folderIdentity(directory), identity: mine },
    )
    const stop = new AbortController()
    const done = renewal.run(stop.signal)
    const waits = (): Promise<unknown> => eventually(() => clock.pending('sleep').length > 0, { intervalMs: 1 })
    await waits()
    const theirs = await made(clock.now(), readCertificate(mine.certificate).serial)
    await writeMemberIdentity(directory, theirs)
    await clock.advance(60_000)
    await eventually(() => used.length > 0, { intervalMs: 1, say: 'the certificate that another agent has stored' })
    t.same(used, [theirs.certificate])
    t.match(logger.lines.at(-1), { message: 'another agent of this cluster has renewed the certificate' })

    await waits()
    await writeMemberIdentity(directory, mine)
    await clock.advance(60_000)
    await waits()
    t.equal(used.length, 1, 'an earlier one is of no use')
    renewal.takeRefusal(true)
    await eventually(() => used.length > 1, { intervalMs: 1, say: 'unless the broker refuses the own one' })
    t.same(used[1], mine.certificate)
    t.equal(asked, 0, 'nothing was renewed')
    stop.abort()
    await clock.advance(1)
    await done
  },
)
