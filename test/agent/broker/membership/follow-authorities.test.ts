/**
 * An agent renews its certificate when its broker announces new authorities, and a broker that announces arbitrary ones
 * cannot make it renew without end.
 */
import t, { type Test } from 'tap'
import { CertificateRenewal, isBehind } from '../../../../agent/link/certificate-renewal.ts'
import { agentMetrics } from '../../../../agent/loop/metrics.ts'
import { parseClusterId } from '../../../../model/ids.ts'
import type { BrokerClient } from '../../../../protocol/broker-client.ts'
import {
  type MemberIdentity,
  folderIdentity,
  readMemberIdentity,
  writeMemberIdentity,
} from '../../../../protocol/membership/member-files.ts'
import { createKey } from '../../../../protocol/identity/keys.ts'
import { fingerprint } from '../../../../protocol/identity/certificates.ts'
import { type Identity, createCa, createCsr, issueMemberCertificate } from '../../../../protocol/identity/x509.ts'
import { FakeClock } from '../../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../../../runtime/metrics/prometheus-metrics.ts'
import { eventually } from '../../../support/eventually.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'

const cluster = parseClusterId('milano')
const MINUTE = 60_000

async function following(t: Test) {
  const clock = new FakeClock()
  const directory = temporaryFolder(t)
  const [first, second] = [await authority(clock), await authority(clock)]
  const key = createKey()
  const issue = (by: Identity, csr: Uint8Array): Promise<Uint8Array> =>
    issueMemberCertificate(by, { clusterset: 'default', cluster, csr, nowMs: clock.now() })
  const identity: MemberIdentity = {
    cluster,
    clusterset: 'default',
    brokerAddresses: ['127.0.0.1:7443'],
    observedAddress: '127.0.0.1',
    key,
    certificate: await issue(first, await createCsr(key)),
    caBundle: [first.certificate],
  }
  await writeMemberIdentity(directory, identity)
  /** The authority that signs the renewed certificate, and the bundle that the broker sends with it. */
  const gives = { by: first, bundle: [first.certificate] }
  let asked = 0
  const client = {
    renew: async (csr: Uint8Array) => {
      asked += 1
      return { certificate: await issue(gives.by, csr), caBundle: gives.bundle }
    },
  } as unknown as BrokerClient
  const renewal = new CertificateRenewal(
    {
      clock,
      logger: new CapturingLogger(),
      agentMetrics: agentMetrics(createMetrics('agent')),
      client: () => client,
      onRenewed: () => undefined,
    },
    { store: folderIdentity(directory), identity },
  )
  const stop = new AbortController()
  const done = renewal.run(stop.signal)
  t.teardown(async () => {
    stop.abort()
    await done
  })
  const asleep = (): Promise<unknown> => eventually(() => clock.pending('sleep').length > 0, { intervalMs: 1 })
  const stored = async (): Promise<MemberIdentity> => {
    const found = await readMemberIdentity(directory)
    if (found === undefined) throw new Error('no identity')
    return found
  }
  await asleep()
  return { clock, first, second, gives, renewal, asleep, stored, asked: () => asked }
}

function authority(clock: FakeClock): Promise<Identity> {
  return createCa({ clusterset: 'default', key: createKey(), nowMs: clock.now() })
}

const hex = ({ certificate }: Identity): string => fingerprint(certificate)

t.test('it renews within the time that is said, once', async (t) => {
  const { clock, first, second, gives, renewal, asleep, stored, asked } = await following(t)
  renewal.takeAuthorities({ bundle: [hex(first)], signing: hex(first), withinMs: 0 })
  await clock.advance(5 * MINUTE)
  t.equal(asked(), 0, 'it has what is said')

  gives.bundle = [first.certificate, second.certificate]
  const announced = { bundle: [hex(first), hex(second)], signing: hex(first), withinMs: 10_000 }
  renewal.takeAuthorities(announced)
  await clock.advance(10_000)
  await eventually(() => asked() === 1, { intervalMs: 1 })
  await eventually(async () => (await stored()).caBundle.length === 2)
  await asleep()
  renewal.takeAuthorities(announced)
  await clock.advance(5 * MINUTE)
  t.equal(asked(), 1, 'said again')

  gives.by = second
  const switched = { ...announced, signing: hex(second) }
  t.ok(isBehind(await stored(), switched), 'its certificate is of the other one')
  renewal.takeAuthorities(switched)
  await clock.advance(10_000)
  await eventually(async () => !isBehind(await stored(), switched))
  await asleep()

  gives.bundle = [second.certificate]
  renewal.takeAuthorities({ bundle: [hex(second)], signing: hex(second), withinMs: 0 })
  await clock.advance(1)
  await eventually(async () => (await stored()).caBundle.length === 1)
  t.equal((await stored()).firstAuthority, hex(first), 'what it knows of others stays under the name that it had')
})

t.test('what is said and not given brings few renewals, however often it is said', async (t) => {
  const { clock, first, second, renewal, asleep, asked } = await following(t)
  for (let n = 0; n < 100; n += 1) {
    renewal.takeAuthorities({ bundle: [hex(second)], signing: hex(n % 2 === 0 ? second : first), withinMs: 0 })
    await clock.advance(100)
    await asleep()
  }
  t.ok(asked() >= 1 && asked() <= 4, `${asked()} in 10 seconds`)
  for (let n = 0; n < 60; n += 1) {
    renewal.takeAuthorities({ bundle: [hex(second)], signing: hex(second), withinMs: 0 })
    await clock.advance(MINUTE)
    await asleep()
  }
  t.ok(asked() <= 20, `${asked()} in an hour`)
})

t.test('an answer that would lock it out is not taken', async (t) => {
  const { clock, second, gives, renewal, stored, asked, first } = await following(t)
  gives.by = second
  gives.bundle = [second.certificate]
  renewal.takeAuthorities({ bundle: [hex(second)], signing: hex(second), withinMs: 0 })
  await clock.advance(1)
  await eventually(() => asked() === 1)
  await eventually(() => renewal.problem()?.includes('this cluster trusts none of its CAs') === true)
  t.strictSame((await stored()).caBundle.map(fingerprint), [hex(first)])
})
