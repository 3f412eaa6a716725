/** Certificates of authorities that no longer count, and a signer that cannot be relied on. */
import { mkdirSync, renameSync, writeFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { openAuthorityStore } from '../support/broker-store.ts'
import type { AuthorityStatus } from '../../protocol/admin/admin-api.ts'
import { parseClusterId } from '../../model/ids.ts'
import { createKey, keyFromPem, keyToPem } from '../../protocol/identity/keys.ts'
import { certificateToPem, certificatesFromPem, fingerprint } from '../../protocol/identity/certificates.ts'
import { createCa, createCsr, issueMemberCertificate } from '../../protocol/identity/x509.ts'
import { LoopbackBroker } from '../cli/loopback-broker.ts'
import { LinkedMember } from '../broker/support/linked-member.ts'
import { aSlice, anExport } from '../broker/support/harness.ts'
import { eventually } from '../support/eventually.ts'
import { failure } from '../support/failure.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { attack } from './support/attack.ts'
import { outcomeOf } from './support/raw-channel.ts'
import { RawMember } from './support/raw-member.ts'

const PATIENCE = { deadlineMs: 40_000, intervalMs: 100 }

async function withStore<T>(
  broker: LoopbackBroker,
  work: (store: Awaited<ReturnType<typeof openAuthorityStore>>) => Promise<T>,
): Promise<T> {
  const store = await openAuthorityStore(broker.state, broker.clock)
  try {
    return await work(store)
  } finally {
    await store.close()
  }
}

async function reached(broker: LoopbackBroker, phase: AuthorityStatus['phase']): Promise<AuthorityStatus> {
  return eventually(
    async () => {
      const status = await withStore(broker, (store) => store.status())
      return status.phase === phase ? status : undefined
    },
    { ...PATIENCE, say: phase },
  )
}

const caOf = async (broker: LoopbackBroker): Promise<Uint8Array> => {
  const [der] = certificatesFromPem(await readFile(join(broker.state, 'ca.crt'), 'utf8'))
  return der ?? new Uint8Array()
}

await attack('authority-removed', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const milano = await LinkedMember.join(t, await broker.token(), 'milano')
  // This member ignores the new authority, which no agent of ours does.
  const stays = await RawMember.join(t, broker, 'paris')
  const stream = await stays.publish().open()
  await withStore(broker, (store) => store.rotate({ force: false }))
  await reached(broker, 'announced')
  await withStore(broker, (store) => store.rotate({ force: true }))
  await eventually(
    async () => (await reached(broker, 'switched')).members.some(({ id, uses }) => id === 'milano' && uses === 'next'),
    PATIENCE,
  )
  const { current } = await withStore(broker, (store) => store.finish({ force: true }))

  t.match((await stream.ended()).details, /was issued by an authority that was removed/)
  await eventually(async () => fingerprint(await caOf(broker)) === current.fingerprint, PATIENCE)
  const atPort = /^UNAUTHENTICATED the certificate was issued by authority [0-9a-f]{16}, which was removed: /
  const refusedAtPort = async (): Promise<boolean> => atPort.test(await outcomeOf(stays.stolen().records()))
  await eventually(refusedAtPort, { ...PATIENCE, say: 'the port says so, before any call is looked at' })
  const again = stays.stolen()
  const refused = atPort
  t.match(await outcomeOf(again.records()), refused)
  t.match(await outcomeOf(again.renew()), refused)
  t.match(await outcomeOf(again.leave()), refused)
  milano.publish(anExport('web'), aSlice('web', '10.42.1.7'))
  const roma = await LinkedMember.join(t, await broker.token(), 'roma')
  await eventually(() => roma.knows('milano/EndpointSlice/shop/web-1') !== undefined, PATIENCE)
  t.strictSame([...milano.refusals, ...roma.refusals], [])
})

await attack('authority-forged', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const key = keyFromPem(await readFile(join(broker.state, 'ca.key'), 'utf8'))
  const stolen = { certificate: await caOf(broker), key }
  const victim = await RawMember.join(t, broker, 'paris')
  const forge = async (issuer: typeof stolen): Promise<RawMember> => {
    const own = createKey()
    const csr = await createCsr(own)
    const init = { clusterset: 'demo', cluster: parseClusterId('paris'), csr, nowMs: broker.clock.now() }
    const certificate = await issueMemberCertificate(issuer, init)
    return victim.with({ ...victim.identity, key: keyToPem(own), cert: certificateToPem(certificate) })
  }
  await withStore(broker, (store) => store.rotate({ force: false }))
  await withStore(broker, (store) => store.rotate({ force: true }))
  await reached(broker, 'switched')
  const { current } = await withStore(broker, (store) => store.finish({ force: true }))
  await eventually(async () => fingerprint(await caOf(broker)) === current.fingerprint, PATIENCE)
  t.match(await outcomeOf((await forge(stolen)).records()), /^UNAUTHENTICATED .* which was removed: /)

  const nobody = createKey()
  const ca = await createCa({ clusterset: 'demo', key: nobody, nowMs: broker.clock.now() })
  t.match(
    await outcomeOf((await forge(ca)).records()),
    /^UNAUTHENTICATED the certificate was not issued by this broker's CA/,
  )
})

await attack('authority-signer', async (t) => {
  const folder = temporaryFolder(t)
  const [givenDir, mode] = [join(folder, 'given'), join(folder, 'mode.mjs')]
  mkdirSync(givenDir)
  const key = createKey()
  const { certificate } = await createCa({ clusterset: 'demo', key, nowMs: Date.now() })
  writeFileSync(join(givenDir, 'hsm.crt'), certificateToPem(certificate))
  writeFileSync(join(folder, 'hsm.pem'), keyToPem(key), { mode: 0o600 })
  writeFileSync(join(folder, 'other.pem'), keyToPem(createKey()), { mode: 0o600 })
  const signBy = (name: string): string => `
    import { readFileSync } from 'node:fs'
    import { createPrivateKey, sign } from 'node:crypto'
    const key = createPrivateKey(readFileSync(${JSON.stringify(join(folder, name))}))
    process.stdout.write(sign('sha256', readFileSync(0), key))`
  const does = (script: string): void => {
    writeFileSync(`${mode}.new`, script)
    renameSync(`${mode}.new`, mode)
  }
  does(signBy('hsm.pem'))
  const signer = { command: process.execPath, args: [mode] }
  const broker = await LoopbackBroker.start(t, { authorityDir: givenDir, signer })
  const milano = await LinkedMember.join(t, await broker.token(), 'milano')
  const paris = await LinkedMember.join(t, await broker.token(), 'paris')
  const token = await broker.token()
  const bad: Readonly<Record<string, string>> = {
    'prints garbage': 'process.stdout.write("garbage")',
    'prints without end': 'for (;;) process.stdout.write("x".repeat(65536))',
    fails: 'process.exit(1)',
    'signs by another key': signBy('other.pem'),
    hangs: 'setInterval(() => undefined, 1000)',
  }
  for (const [n, [name, script]] of Object.entries(bad).entries()) {
    does(script)
    const refused = await failure(LinkedMember.join(t, token, 'bern'))
    t.match(refused, { name: 'BrokerUnreachableError', reason: 'SignerFailed' }, `${name}: ${refused.message}`)
    milano.publish(anExport('web'), aSlice('web', `10.42.1.${n + 1}`))
    await eventually(() => paris.knows('milano/EndpointSlice/shop/web-1')?.includes(`"10.42.1.${n + 1}"`), PATIENCE)
  }
  does(signBy('hsm.pem'))
  const bern = await LinkedMember.join(t, token, 'bern')
  await eventually(() => bern.knows('milano/EndpointSlice/shop/web-1') !== undefined, PATIENCE)
  t.strictSame([...milano.refusals, ...paris.refusals], [])
})
