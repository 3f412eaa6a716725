/** The Membership that a join leaves behind. */
import t from 'tap'
import { type JoinAnswer, addressNotes, joinedMembership } from '../../model/membership.ts'
import { parseClusterId } from '../../model/ids.ts'

const ANSWER: JoinAnswer = {
  clusterset: 'demo',
  observedAddress: '192.0.2.7',
  globalRange: '244.0.0.0/8',
  clustersetIpRange: '245.0.0.0/16',
}

t.test('what the broker says of addresses is kept, a line each, and can do nothing to a terminal', async (t) => {
  const id = parseClusterId('milano')
  const notes = ['its pods have global addresses', 'two\nlines and \u001b[2J']
  t.same(addressNotes(joinedMembership(id, { ...ANSWER, notes })), [notes[0], 'two lines and  [2J'])
  for (const none of [{}, { notes: [] }]) {
    const membership = joinedMembership(id, { ...ANSWER, ...none })
    t.equal(membership.metadata.annotations, undefined, 'nothing to say')
    t.same(addressNotes(membership), [])
  }
})
