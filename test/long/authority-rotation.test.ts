/**
 * The certificate authority is rotated while members work, while the broker is killed between the steps, and while one
 * member is away.
 */
import t from 'tap'
import { AuthorityCommands, OWN_PATIENCE, isFree } from '../broker/support/authority-commands.ts'
import { LinkedMember } from '../broker/support/linked-member.ts'
import { Traffic } from '../broker/support/member-traffic.ts'
import { runCli } from '../cli/run-cli.ts'
import { eventually } from '../support/eventually.ts'
import { BrokerProcess } from '../story/broker-process.ts'

t.setTimeout(300_000)

t.test('two steps under traffic, with a member that is away and a broker that is killed', async (t) => {
  const broker = await BrokerProcess.start(t)
  const ca = new AuthorityCommands(broker)
  const before = await ca.status()
  const [milano, paris, roma, oslo] = [
    await LinkedMember.join(t, await broker.token(), 'milano'),
    await LinkedMember.join(t, await broker.token(), 'paris'),
    await LinkedMember.join(t, await broker.token(), 'roma'),
    await LinkedMember.join(t, await broker.token(), 'oslo'),
  ]
  const early = await broker.token()
  const traffic = new Traffic(t, milano)
  await traffic.seen(paris, roma, oslo)
  await oslo.stop()

  const { next } = await ca.step(t, 'rotate')
  await broker.kill()
  await broker.start()
  await traffic.seen(paris, roma)
  await ca.until('announced', ({ waitsFor }) => waitsFor.members.map(({ id }) => id).join() === 'oslo')
  const bern = await LinkedMember.join(t, early, 'bern')
  await traffic.seen(bern)
  t.strictSame(await milano.bundle(), [before.current.fingerprint, next?.fingerprint])
  const refused = await ca.ask('finish')
  t.equal(refused.code, 1)
  t.match(
    refused.stderr,
    /the new authority cannot sign yet: oslo does not have the new authority yet, at the latest until/,
  )
  t.match(refused.stderr, /reason: AuthorityInUse/)
  const during = await broker.token()

  await oslo.start()
  await ca.until('switched')
  await broker.kill()
  await broker.start()
  await ca.until('switched', isFree)
  await traffic.seen(paris, roma, oslo, bern)
  const late = await LinkedMember.join(t, during, 'wien')
  await traffic.seen(late)

  await ca.step(t, 'finish')
  await broker.kill()
  await broker.start()
  const all = [milano, paris, roma, oslo, bern, late]
  for (const member of all) {
    await eventually(async () => (await member.bundle()).join() === next?.fingerprint, {
      ...OWN_PATIENCE,
      say: `${member.id} trusts the new one alone`,
    })
    await member.connected()
  }
  await traffic.seen(...all.slice(1))
  t.match(await ca.status(), { phase: 'steady', current: { fingerprint: next?.fingerprint } })
  const last = await LinkedMember.join(t, await broker.token(), 'graz')
  await traffic.seen(last)
  for (const member of all) t.strictSame(member.refusals, [], `${member.id} was never refused`)
})

t.test('it can be gone back, also when the new one has signed, and begun anew', async (t) => {
  const broker = await BrokerProcess.start(t)
  const ca = new AuthorityCommands(broker)
  const { current } = await ca.status()
  const milano = await LinkedMember.join(t, await broker.token(), 'milano')
  const paris = await LinkedMember.join(t, await broker.token(), 'paris')
  const roma = await LinkedMember.join(t, await broker.token(), 'roma')
  const traffic = new Traffic(t, milano)
  await ca.step(t, 'rotate')
  await ca.step(t, 'abort')
  t.match(await ca.status(), { phase: 'steady', current: { fingerprint: current.fingerprint } })
  t.match((await ca.ask('finish')).stderr, /no authority is announced/)

  const { next } = await ca.step(t, 'rotate')
  await ca.until('switched', isFree)
  await roma.stop()
  await ca.step(t, 'abort')
  await broker.kill()
  await broker.start()
  await ca.until('withdrawn', ({ waitsFor }) => waitsFor.members.map(({ id }) => id).join() === 'roma')
  await traffic.seen(paris)
  await roma.start()
  await ca.until('steady')
  await traffic.seen(paris, roma)
  const all = [milano, paris, roma]
  for (const member of all) {
    await eventually(async () => (await member.bundle()).join() === current.fingerprint, OWN_PATIENCE)
    t.strictSame(member.refusals, [], `${member.id} was never refused`)
  }

  const again = await ca.step(t, 'rotate')
  t.not(again.next?.fingerprint, next?.fingerprint, 'what was withdrawn does not come back')
  await ca.until('switched', isFree)
  await ca.step(t, 'finish')
  await traffic.seen(paris, roma)
})

t.test('finish cuts nobody off, unless it is forced to', async (t) => {
  const broker = await BrokerProcess.start(t)
  const ca = new AuthorityCommands(broker)
  const milano = await LinkedMember.join(t, await broker.token(), 'milano')
  const paris = await LinkedMember.join(t, await broker.token(), 'paris')
  const oslo = await LinkedMember.join(t, await broker.token(), 'oslo')
  const traffic = new Traffic(t, milano)
  await oslo.stop()
  const unused = await broker.token()
  await ca.step(t, 'rotate')
  await ca.until('announced', ({ waitsFor }) => waitsFor.members.length === 1)
  const { waitsFor } = await ca.status()
  t.match(waitsFor.members, [{ id: 'oslo' }])
  t.equal(waitsFor.tokens.length, 1)
  t.match((await ca.ask('finish')).stderr, /token \w+ pins only the old authority/)

  t.match((await ca.ask('finish', '--force')).stderr, /cannot sign yet/, 'nobody could go on')

  await ca.step(t, 'rotate', '--force')
  await ca.until('switched', (now) => now.waitsFor.members.map(({ id }) => id).join() === 'oslo')
  t.match(
    (await ca.ask('finish')).stderr,
    /the old authority is still in use: oslo does not have the new authority yet/,
  )
  await ca.step(t, 'finish', '--force')
  await eventually(async () => (await milano.bundle()).length === 1, OWN_PATIENCE)
  await traffic.seen(paris)
  const tokens = await runCli(['token', 'list', '--state', broker.state, '-o', 'json'])
  t.match(
    (JSON.parse(tokens.stdout) as { items: { id: string; state: string }[] }).items.find(({ id }) =>
      waitsFor.tokens.includes(id),
    ),
    { state: 'revoked' },
    'a token that no broker can be found by any more',
  )
  await t.rejects(LinkedMember.join(t, unused, 'bern'), /does not have the CA that the join token names/)
  await oslo.begin()
  await eventually(() => oslo.refusals.some((one) => one.startsWith('CertificateUntrusted')), OWN_PATIENCE)
})
