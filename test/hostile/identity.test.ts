/** Copies of a member's identity in the hands of an attacker. */
import type { Test } from 'tap'
import { messageOf } from '../support/failure.ts'
import { eventually } from '../support/eventually.ts'
import { attack } from './support/attack.ts'
import { textOf, outcomeOf } from './support/raw-channel.ts'
import { newProcessMark } from '../../protocol/identity/process-mark.ts'
import { RawMember, startTarget } from './support/raw-member.ts'

const MINUTE = 60_000
/** Longer than a replaced certificate is still accepted. */
const OVER = 6 * MINUTE

await attack('identity-replaced-renews', async (t) => {
  const { broker, clock } = await startTarget(t)
  const owner = await RawMember.join(t, broker, 'paris')
  const thief = owner.stolen()
  const next = await owner.renew()
  t.equal(await outcomeOf(next.records()), 'ok', 'the new certificate is used')
  t.match(
    await outcomeOf(thief.renew()),
    /^PERMISSION_DENIED certificate .* was replaced at .*: renew the newer certificate instead$/,
  )
  clock.shiftMs += OVER
  const refused =
    /^PERMISSION_DENIED certificate [0-9a-f]+ of cluster "paris" was replaced by a renewed one at .*, so this is a copy: /
  t.match(await outcomeOf(thief.renew()), refused)
  t.match(await outcomeOf(thief.records()), refused)
  t.match(await outcomeOf(thief.leave()), refused)
  t.equal(await outcomeOf(next.renew()), 'ok')
})

await attack('identity-many-renewals', async (t) => {
  const { broker, clock } = await startTarget(t)
  const owner = await RawMember.join(t, broker, 'paris')
  const thief = owner.stolen()
  const next = await owner.renew()
  const hoard: RawMember[] = []
  for (let n = 0; n < 20; n += 1) hoard.push(await thief.renew())
  t.equal(await outcomeOf(next.records()), 'ok', 'the owner uses what it was given')
  clock.shiftMs += OVER
  for (let look = 0; look < 8; look += 1) {
    t.equal(await outcomeOf(next.records()), 'ok', 'and goes on')
    // Each refused certificate costs a connection, and one source address may open only a few.
    const shown = look === 0 ? hoard : hoard.slice(look, look + 1)
    for (const one of shown) t.match(await outcomeOf(one.records()), /^PERMISSION_DENIED /)
    clock.shiftMs += 5 * MINUTE
  }
  t.equal(await outcomeOf(next.renew()), 'ok')
})

/** The owner and the thief each renew from the same certificate, and each uses its new one. */
async function fork(t: Test, last: 'thief' | 'owner'): Promise<void> {
  const { broker, clock } = await startTarget(t)
  const owner = await RawMember.join(t, broker, 'paris')
  const thief = owner.stolen()
  const [next, hoarded] = [await owner.renew(), await thief.renew()]
  const order = last === 'thief' ? [next, hoarded] : [hoarded, next]
  for (const one of order) t.equal(await outcomeOf(one.records()), 'ok', 'two agents may renew at once')
  clock.shiftMs += OVER
  // The report that is made at most once a minute is used up by the certificate that both were renewed from.
  await outcomeOf(owner.records())
  for (const one of [next, hoarded]) await outcomeOf(one.records())
  clock.shiftMs += MINUTE
  await outcomeOf(owner.records())
  const forked = /^PERMISSION_DENIED cluster "paris" uses two certificates .* "sealane cluster rekey paris"/
  await eventually(async () => {
    for (const one of [next, hoarded]) await outcomeOf(one.records())
    return forked.test(await outcomeOf(next.records()))
  })
  // The machine's own clock limits how far the test can move time; succession.test.ts covers days.
  for (let look = 0; look < 8; look += 1) {
    for (const one of [owner, next, hoarded, hoarded.stolen()]) {
      t.match(await outcomeOf(one.records()), forked, `look ${look}`)
      t.match(await outcomeOf(one.renew()), forked)
    }
    clock.shiftMs += 5 * MINUTE
  }
  await broker.stop()
  await broker.start()
  t.match(await outcomeOf(hoarded.records()), forked, 'a restart forgets nothing')
  const [known] = await broker.tokens((store) => store.members())
  t.match(known, { id: 'paris', misuse: { address: '127.0.0.1' } })
  t.type(known?.forkedAtMs, 'number')
  const reported = broker.logger.lines.filter(({ fields }) => fields['reason'] === 'IdentityForked')
  t.match(reported[0]?.fields, { cluster: 'paris', advice: 'sealane cluster rekey paris' })

  const { text } = await broker.tokens((store) => store.rekey({ cluster: 'paris' }))
  const again = await RawMember.join(t, broker, 'paris', { token: text })
  clock.shiftMs += OVER
  t.equal(await outcomeOf(again.records()), 'ok', 'the owner is back')
  for (const one of [owner, next, hoarded]) t.match(await outcomeOf(one.records()), /^PERMISSION_DENIED /)
  t.equal(await outcomeOf(again.records()), 'ok', 'for good')
}

await attack('identity-fork-thief-last', (t) => fork(t, 'thief'))
await attack('identity-fork-owner-last', (t) => fork(t, 'owner'))

await attack('identity-thief-first', async (t) => {
  for (const [cluster, ownerBack, thiefMark] of [
    ['paris', 'the same process', newProcessMark()],
    ['milano', 'started again', newProcessMark()],
    ['lyon', 'the same process', undefined],
  ] as const) {
    const { broker, clock } = await startTarget(t)
    const mark = newProcessMark()
    const owner = (await RawMember.join(t, broker, cluster)).by(mark)
    t.equal(await outcomeOf(owner.records()), 'ok')
    const thief = owner.by(thiefMark)
    t.equal(await outcomeOf(thief.records()), 'ok')
    let next = await thief.renew()
    t.equal(await outcomeOf(next.records()), 'ok', 'nothing tells it from the owner yet')
    // The thief renews so often that a list of only the latest certificates would no longer hold the owner's.
    for (let n = 0; cluster === 'paris' && n < 18; n += 1) {
      next = await next.renew()
      t.equal(await outcomeOf(next.records()), 'ok')
    }
    clock.shiftMs += 10 * OVER
    const back = ownerBack === 'started again' ? owner.by(newProcessMark()) : owner
    t.match(await outcomeOf(back.records()), /^PERMISSION_DENIED .*, so this is a copy: /)
    t.equal(await outcomeOf(next.records()), 'ok')
    clock.shiftMs += MINUTE
    const forked = new RegExp(`^PERMISSION_DENIED cluster "${cluster}" uses two certificates `, 'u')
    await eventually(async () => {
      await outcomeOf(back.records())
      return forked.test(await outcomeOf(next.records()))
    })
    await broker.stop()
    await broker.start()
    for (const one of [back, owner, next, thief]) t.match(await outcomeOf(one.renew()), forked, ownerBack)
    const [known] = await broker.tokens((store) => store.members())
    t.type(known?.forkedAtMs, 'number')
    const reported = broker.logger.lines.filter(({ fields }) => fields['reason'] === 'IdentityForked')
    t.match(reported[0]?.fields, { cluster, advice: `sealane cluster rekey ${cluster}` })
  }
})

await attack('identity-old-copy', async (t) => {
  const { broker, clock } = await startTarget(t)
  const owner = (await RawMember.join(t, broker, 'paris')).by(newProcessMark())
  t.equal(await outcomeOf(owner.records()), 'ok')
  const copies = [owner.by(newProcessMark()), owner.by(undefined)]
  const next = await owner.renew()
  t.equal(await outcomeOf(next.records()), 'ok')
  clock.shiftMs += OVER
  for (let look = 0; look < 3; look += 1) {
    for (const copy of copies) t.match(await outcomeOf(copy.records()), /^PERMISSION_DENIED .*, so this is a copy: /)
    clock.shiftMs += 2 * MINUTE
    t.equal(await outcomeOf(next.records()), 'ok', 'the owner goes on')
  }
  t.equal(await outcomeOf(next.renew()), 'ok')
})

await attack('identity-stolen-told', async (t) => {
  const { broker, clock } = await startTarget(t)
  const owner = await RawMember.join(t, broker, 'paris')
  const thief = owner.stolen()
  await (await owner.renew()).records()
  clock.shiftMs += OVER
  for (let n = 0; n < 5; n += 1) await outcomeOf(thief.records())
  const reported = broker.logger.lines.filter(({ fields }) => fields['audit'] === 'certificate-stolen')
  t.equal(reported.length, 1, 'told once')
  t.match(reported[0]?.fields, { cluster: 'paris', address: '127.0.0.1', advice: 'sealane cluster rekey paris' })
  t.match(await broker.metrics.text(), /sealane_broker_superseded_certificates_total(\{[^}]*\})? 5\n/)
  await eventually(async () => {
    const [paris] = await broker.tokens((store) => store.members())
    return paris?.misuse?.address === '127.0.0.1'
  })
})

await attack('identity-stream-outlives', async (t) => {
  const { broker, clock } = await startTarget(t)
  const owner = await RawMember.join(t, broker, 'paris')
  const thief = await owner.stolen().publish().open()
  await (await owner.renew()).records()
  t.equal(thief.status, undefined, 'for a moment both are taken')
  clock.shiftMs += OVER
  t.match(textOf(await thief.ended(20_000)), /^PERMISSION_DENIED .*, so this is a copy: /)
})

await attack('identity-lost-answers', async (t) => {
  const { broker, clock } = await startTarget(t)
  const owner = await RawMember.join(t, broker, 'paris')
  for (let n = 0; n < 12; n += 1) await owner.renew()
  clock.shiftMs += OVER
  t.equal(await outcomeOf(owner.records()), 'ok', 'no answer came: the certificate in use goes on')
  await broker.stop()
  await broker.start()
  const next = await owner.renew()
  t.equal(await outcomeOf(next.records()), 'ok')
  await broker.stop()
  await broker.start()
  clock.shiftMs += OVER
  t.match(await outcomeOf(owner.records()), /so this is a copy/, 'a restart forgets nothing')
  t.equal(await outcomeOf(next.records()), 'ok')
})

await attack('identity-two-agents', async (t) => {
  const { broker, clock } = await startTarget(t)
  const first = await RawMember.join(t, broker, 'paris')
  const [one, other] = [await first.renew(), await first.stolen().renew()]
  t.equal(await outcomeOf(one.records()), 'ok')
  t.equal(await outcomeOf(other.records()), 'ok')
  t.equal(await outcomeOf(one.records()), 'ok', 'both are taken, until each has seen what is in the store')
  clock.shiftMs += OVER
  t.equal(await outcomeOf(one.records()), 'ok', 'the other has gone over to it, as it is the one that is stored')
  for (let look = 0; look < 8; look += 1) {
    clock.shiftMs += 5 * MINUTE
    t.equal(await outcomeOf(one.records()), 'ok', 'it goes on')
  }
  t.equal(await outcomeOf(one.renew()), 'ok')
})

await attack('identity-taken-over', async (t) => {
  const { broker, clock } = await startTarget(t)
  const owner = await RawMember.join(t, broker, 'paris')
  const [before] = await broker.tokens((store) => store.members())
  const thief = await owner.stolen().renew()
  await thief.records()
  clock.shiftMs += OVER
  t.match(await outcomeOf(owner.records()), /"sealane cluster rekey paris" on the broker$/)
  t.match(await messageOf(RawMember.join(t, broker, 'paris')), /is already a member/, 'any token is not enough')

  const { text } = await broker.tokens((store) => store.rekey({ cluster: 'paris' }))
  const rekeyed = /^PERMISSION_DENIED the identity of cluster "paris" was revoked at /
  await eventually(async () => rekeyed.test(await outcomeOf(thief.records())), { say: 'the thief is refused at once' })
  t.match(await outcomeOf(thief.renew()), rekeyed)
  t.match(await messageOf(RawMember.join(t, broker, 'paris')), /is already a member/, 'nobody comes in between')
  const again = await RawMember.join(t, broker, 'paris', { token: text })
  t.same(await again.stored(), ['cluster//paris'])
  const [after] = await broker.tokens((store) => store.members())
  t.same([after?.podCIDRs, after?.globalCIDRs, after?.misuse], [before?.podCIDRs, before?.globalCIDRs, undefined])
  t.match(await outcomeOf(thief.records()), /^PERMISSION_DENIED /)
  t.match(await outcomeOf(owner.renew()), /^PERMISSION_DENIED /)
})

await attack('identity-refused-connections', async (t) => {
  const { broker } = await startTarget(t)
  const thief = (await RawMember.join(t, broker, 'paris')).stolen()
  const { text } = await broker.tokens((store) => store.rekey({ cluster: 'paris' }))
  const owner = await RawMember.join(t, broker, 'paris', { token: text })
  const stream = await owner.publish().open()
  for (let n = 0; n < 20; n += 1) t.match(await outcomeOf(thief.stolen().records()), /^PERMISSION_DENIED /)
  t.equal(await outcomeOf(owner.records()), 'ok')
  t.equal(stream.status, undefined, 'the stream is the one of before')
})
