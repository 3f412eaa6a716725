/** Answers of a compromised broker to members that join or renew a certificate. */
import { readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseClusterId } from '../../model/ids.ts'
import { createKey } from '../../protocol/identity/keys.ts'
import { readMemberIdentity } from '../../protocol/membership/member-files.ts'
import { fingerprint, readCertificate } from '../../protocol/identity/certificates.ts'
import { createCa, createCsr, issueMemberCertificate } from '../../protocol/identity/x509.ts'
import { runCli } from '../cli/run-cli.ts'
import { nodeYaml } from '../cli/site-folder.ts'
import { FileSite } from '../kubeapi/files/file-site.ts'
import { eventually } from '../support/eventually.ts'
import { attack } from './support/attack.ts'
import { FakeBroker } from './support/fake-broker.ts'
import { Victim, type VictimInit } from './support/victim.ts'

const JOINING = `
apiVersion: sealane.io/v1alpha1
kind: Site
metadata: { name: milano }
spec:
  podCIDRs: [10.42.0.0/16]
  serviceCIDRs: [10.43.0.0/16]
  gateways: [{ node: gw, lane: 0 }]
  dns: { listen: ['10.42.0.1:53'] }
`

await attack('broker-renewal', async (t) => {
  const HOUR_MS = 3_600_000
  const answer = (certificate: Uint8Array, ca: Uint8Array = Buffer.from('ca')) => ({
    certificate: Buffer.from(certificate),
    caBundle: [Buffer.from(ca)],
  })
  const otherKey = await createCsr(createKey())
  const bad: Readonly<Record<string, VictimInit['renewal']>> = {
    rubbish: (broker) => () => Promise.resolve(answer(Buffer.from('rubbish'), broker.caCertificate)),
    'of another cluster': (broker) => async (csr) =>
      answer(await broker.certificateFor('paris', csr), broker.caCertificate),
    'for another key': (broker) => async () =>
      answer(await broker.certificateFor('milano', otherKey), broker.caCertificate),
    'with a CA that is none': (broker) => async (csr) => answer(await broker.certificateFor('milano', csr)),
    'with no CA': (broker) => async (csr) => ({
      certificate: Buffer.from(await broker.certificateFor('milano', csr)),
      caBundle: [],
    }),
    'with a CA of another clusterset beside it': (broker) => async (csr) => ({
      certificate: Buffer.from(await broker.certificateFor('milano', csr)),
      caBundle: [Buffer.from(broker.caCertificate), Buffer.from(await otherCa('elsewhere'))],
    }),
    'with more CAs than anybody needs': (broker) => async (csr) => ({
      certificate: Buffer.from(await broker.certificateFor('milano', csr)),
      caBundle: Array.from({ length: 9 }, () => Buffer.from(broker.caCertificate)),
    }),
    'of a CA that comes from nowhere': (broker) => async (csr) => {
      const { certificate, ca } = await fromNowhere(broker, csr)
      return answer(certificate, ca)
    },
    'ended already': (broker) => async (csr) =>
      answer(await broker.certificateFor('milano', csr, 5 * HOUR_MS), broker.caCertificate),
  }
  for (const [name, renewal] of Object.entries(bad)) {
    await t.test(name, async (t) => {
      const victim = await Victim.start(t, { ageMs: 3 * HOUR_MS, renewal })
      await eventually(() => victim.reportedOf('certificate renewal failed; retrying'), { deadlineMs: 20_000 })
      const identity = await readMemberIdentity(join(victim.site.state, 'identity'))
      t.equal(readCertificate(identity?.certificate ?? new Uint8Array()).cluster, 'milano')
      t.strictSame(identity?.caBundle.map(fingerprint), [fingerprint(victim.broker.caCertificate)])
      t.ok(readCertificate(identity?.certificate ?? new Uint8Array()).renewAtMs < Date.now(), 'it is the one of before')
    })
  }
  const good = await Victim.start(t, {
    ageMs: 3 * HOUR_MS,
    renewal: (broker) => async (csr) => answer(await broker.certificateFor('milano', csr), broker.caCertificate),
  })
  await eventually(() => good.reportedOf('certificate renewed'), { deadlineMs: 20_000 })
})

/** Makes a CA of the victim's clusterset that the victim does not trust, and a certificate signed by it. */
async function fromNowhere(broker: FakeBroker, csr: Uint8Array) {
  const { clusterset } = readCertificate(broker.caCertificate)
  const nowMs = Date.now()
  const ca = await createCa({ clusterset: clusterset ?? '', key: createKey(), nowMs })
  const init = { clusterset: clusterset ?? '', cluster: parseClusterId('milano'), csr, nowMs }
  return { ca: ca.certificate, certificate: await issueMemberCertificate(ca, init) }
}

async function otherCa(clusterset: string): Promise<Uint8Array> {
  return (await createCa({ clusterset, key: createKey(), nowMs: Date.now() })).certificate
}

await attack('broker-authorities', async (t) => {
  const victim = await Victim.start(t, {
    renewal: (broker) => async (csr) => ({
      certificate: Buffer.from(await broker.certificateFor('milano', csr)),
      caBundle: [Buffer.from(broker.caCertificate)],
    }),
  })
  const own = Buffer.from(fingerprint(victim.broker.caCertificate), 'hex')
  const never = Buffer.alloc(32, 7)
  for (let n = 0; n < 200; n += 1) {
    const value = {
      bundle: [own, Buffer.alloc(32, n)],
      signing: never,
      withinMs: n % 2 === 0 ? 0 : Number.MAX_SAFE_INTEGER,
    }
    victim.broker.say({ $case: 'authorities', value })
  }
  await eventually(() => victim.reportedOf('certificate renewed'), { deadlineMs: 20_000 })
  const identity = await readMemberIdentity(join(victim.site.state, 'identity'))
  t.strictSame(identity?.caBundle.map(fingerprint), [fingerprint(victim.broker.caCertificate)])
  t.ok(victim.broker.renewals < 5, `what is said has no effect but ${victim.broker.renewals} renewals`)
})

await attack('broker-join-answer', async (t) => {
  const broker = await FakeBroker.start(t, [])
  const csr = await createCsr(createKey())
  const bad: Readonly<Record<string, FakeBroker['joined']>> = {
    'other pods': { podCidrs: ['10.99.0.0/16'], serviceCidrs: ['10.43.0.0/16'] },
    'more pods': { podCidrs: ['10.42.0.0/16', '192.0.2.0/24'], serviceCidrs: ['10.43.0.0/16'] },
    'no Services': { podCidrs: ['10.42.0.0/16'], serviceCidrs: [] },
    'global CIDR elsewhere': { globalCidrs: ['192.168.0.0/16'] },
    'global CIDR of another size': { globalCidrs: ['244.0.0.0/24'] },
    'global range is all there is': { globalRange: '0.0.0.0/0' },
    'global range on the pods': { globalRange: '10.0.0.0/8' },
    'clusterset IPs on the Services': { clustersetIpRange: '10.43.0.0/16' },
    'clusterset IPs on loopback': { clustersetIpRange: '127.0.0.0/8' },
    'clusterset IPs of IPv6': { clustersetIpRange: 'fd00::/112' },
    'certificate of another': { certificate: Buffer.from(await broker.certificateFor('paris', csr)) },
    'certificate of a key that nobody has': { certificate: Buffer.from(await broker.certificateFor('milano', csr)) },
    'no CA': { caBundle: [] },
    'another clusterset': { clusterset: 'other' },
    'a number beyond all': { clusterIndex: 70_000 },
  }
  const site = new FileSite(t)
  const file = join(site.folder, 'site.yaml')
  writeFileSync(file, JOINING)
  writeFileSync(join(site.folder, 'objects', 'nodes.yaml'), nodeYaml('gw', '192.168.1.1'))
  for (const [name, joined] of Object.entries(bad)) {
    broker.joined = joined
    const { code, stderr } = await runCli(['join', '--site', file, '--token', broker.token()])
    t.equal(code, 1, name)
    t.match(stderr, /is not valid|invalid message/, stderr.split('\n')[0] ?? name)
    const made = readdirSync(site.folder, { recursive: true }).map(String)
    t.notOk(
      made.some((path) => /broker\.json|milano|self/.test(path)),
      `${name}: nothing is kept`,
    )
  }
  broker.joined = {}
  const { code, stderr } = await runCli(['join', '--site', file, '--token', broker.token()])
  t.equal(code, 0, `an honest answer: ${stderr}`)
})
