/** The Membership that a join leaves behind. */
import t from 'tap'
import {
  type AccessOfMember,
  type JoinAnswer,
  type MembershipAround,
  addressNotes,
  joinedMembership,
} from '../../model/membership.ts'
import { parseClusterId } from '../../model/ids.ts'
import type { Membership } from '../../model/objects.ts'
import { membershipObject } from '../support/objects/cluster-objects.ts'

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

/** Its exports are closed until the broker states the default. */
const NEW = { exposure: 'exports', accessDefault: 'deny' } as const

t.test('what a join says about access', async (t) => {
  const before = (change: Partial<Membership['spec']>): Membership =>
    membershipObject({ clusterset: 'demo', accessDefault: undefined, ...change } as never)
  const rows: readonly [string, MembershipAround, AccessOfMember][] = [
    ['a new member', {}, NEW],
    ['a new member whose configuration says so', { exposure: 'pods' }, { ...NEW, exposure: 'pods' }],
    ['one of before there was a choice', { before: before({}) }, {}],
    ['one of before that now says so', { before: before({}), exposure: 'exports' }, { exposure: 'exports' }],
    [
      'what the broker stated stays',
      { before: before({ exposure: 'nothing', accessDefault: 'deny' }) },
      { exposure: 'nothing', accessDefault: 'deny' },
    ],
    ['one of another clusterset', { before: before({ clusterset: 'other', accessDefault: 'allow' }) }, NEW],
    [
      'a lost one',
      { kept: { clusterset: 'demo', exposure: 'pods', accessDefault: 'deny' } },
      { exposure: 'pods', accessDefault: 'deny' },
    ],
    ['a lost one of before there was a choice', { kept: { clusterset: 'demo' } }, {}],
    ['a lost one of another clusterset', { kept: { clusterset: 'other', exposure: 'pods' } }, NEW],
    [
      'what is there counts, not what was kept',
      {
        before: before({ exposure: 'nothing' }),
        kept: { clusterset: 'demo', exposure: 'pods', accessDefault: 'allow' },
      },
      { exposure: 'nothing' },
    ],
    ['one that has left', { before: before({ phase: 'leaving', exposure: 'pods' }) }, NEW],
  ]
  for (const [title, around, want] of rows) {
    const { exposure, accessDefault } = joinedMembership(parseClusterId('paris'), ANSWER, around).spec
    t.same({ exposure, accessDefault }, { exposure: undefined, accessDefault: undefined, ...want }, title)
  }
})
