import { chmodSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { CertificateAuthority } from '../../../broker/identity/certificate-authority.ts'
import { openMemoryLog } from '../../../broker/store/memory-log.ts'
import { fingerprint, readCertificate } from '../../../protocol/identity/certificates.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { messageOf } from '../../support/failure.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const DAY = 24 * 3_600_000

t.test('made once, read ever after', async (t) => {
  const stateDir = temporaryFolder(t)
  const clock = new FakeClock()
  const log = openMemoryLog()
  const open = (hosts = ['broker.example.org', '192.0.2.1']): Promise<CertificateAuthority> =>
    CertificateAuthority.open({ clock, log }, { stateDir, clusterset: 'demo', hosts, memberMs: DAY })
  const first = await open()
  for (const name of ['ca.key', 'server.key']) t.equal(statSync(join(stateDir, name)).mode & 0o777, 0o600, name)
  const second = await open()
  t.equal(second.pin, first.pin)
  t.equal(fingerprint(second.server.certificate), fingerprint(first.server.certificate))
  const facts = readCertificate(first.server.certificate)
  t.ok(facts.dnsNames.includes('broker.example.org'))
  t.equal(await second.renewServer(), false)

  await clock.advance(61 * DAY)
  t.equal(await second.renewServer(), true, 'after two thirds of its life')
  t.ok(readCertificate(second.server.certificate).notAfterMs > facts.notAfterMs)

  const moved = await open(['other.example.org'])
  t.not(
    fingerprint(moved.server.certificate),
    fingerprint(second.server.certificate),
    'another name, another certificate',
  )
  writeFileSync(join(stateDir, 'server.crt'), 'x')
  t.equal((await open()).pin, first.pin, 'a damaged server certificate is made again')

  rmSync(join(stateDir, 'ca.key'))
  t.equal(
    await messageOf(open()),
    `${join(stateDir, 'ca.key')} is missing, although ${join(stateDir, 'ca.crt')} exists: restore the key from a backup`,
  )
})

t.test('the state directory is made private; one that is there already is nobody to change', async (t) => {
  const folder = temporaryFolder(t)
  const mode = (path: string): number => statSync(path).mode & 0o777
  chmodSync(folder, 0o755)
  const init = { clusterset: 'demo', hosts: [], memberMs: DAY }
  await CertificateAuthority.open({ clock: new FakeClock(), log: openMemoryLog() }, { ...init, stateDir: folder })
  t.equal(mode(folder), 0o755)
  t.equal(mode(join(folder, 'ca.key')), 0o600)
  await CertificateAuthority.open(
    { clock: new FakeClock(), log: openMemoryLog() },
    { ...init, stateDir: join(folder, 'new') },
  )
  t.equal(mode(join(folder, 'new')), 0o700)
})

t.test('a first start that was interrupted is taken up again', async (t) => {
  const stateDir = temporaryFolder(t)
  const clock = new FakeClock()
  const log = openMemoryLog()
  const open = (): Promise<CertificateAuthority> =>
    CertificateAuthority.open({ clock, log }, { stateDir, clusterset: 'demo', hosts: [], memberMs: DAY })
  await open()
  rmSync(join(stateDir, 'ca.crt'))
  rmSync(join(stateDir, 'server.crt'))
  await open()
  await clock.advance(11 * 365 * DAY)
  t.equal(
    await messageOf(open()),
    `${join(stateDir, 'ca.crt')} expired at 2035-12-30T00:00:00.000Z: check this machine's clock`,
  )
})
