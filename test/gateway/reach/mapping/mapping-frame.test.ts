/** The octets of PCP and NAT-PMP, by the figures of their RFCs, and what is no answer. */
import fc from 'fast-check'
import t from 'tap'
import {
  decodeMapping,
  encodeNatPmpAddress,
  encodeNatPmpMap,
  encodePcpMap,
} from '../../../../gateway/reach/mapping/mapping-frame.ts'
import { formatAddress, parseAddress } from '../../../../model/addresses/addresses.ts'
import { Router } from './support/router.ts'

const NONCE = Buffer.from('0102030405060708090a0b0c', 'hex')
const QUESTION = { inside: 4500, outside: 4501, lifetimeSeconds: 600 }
const CLIENT = parseAddress('10.0.0.2')

t.test('questions', async (t) => {
  const pcp = encodePcpMap(QUESTION, { client: CLIENT, nonce: NONCE })
  const parts = ['02010000', '00000258', '00000000000000000000ffff0a000002', '0102030405060708090a0b0c']
  t.equal(pcp.toString('hex'), [...parts, '11000000', '11941195', '00000000000000000000ffff00000000'].join(''))
  const end = encodePcpMap({ ...QUESTION, lifetimeSeconds: 0 }, { client: CLIENT, nonce: NONCE })
  t.equal(end.toString('hex', 40, 44), '11940000', 'the end')
  t.equal(encodeNatPmpAddress().toString('hex'), '0000')
  t.equal(encodeNatPmpMap(QUESTION).toString('hex'), '000100001194119500000258')
  t.equal(encodeNatPmpMap({ ...QUESTION, lifetimeSeconds: 0 }).toString('hex'), '000100001194000000000000', 'the end')
})

t.test('answers of a router', async (t) => {
  const router = new Router({ speaks: ['pcp', 'natPmp'], address: '203.0.113.7', gives: () => 40_000 })
  const asked = (question: Buffer) => decodeMapping(router.answer(question, '10.0.0.2') ?? Buffer.alloc(0))
  const stated = { result: 0, epoch: 1000, inside: 4500, outside: 40_000, lifetimeSeconds: 600 }
  const pcp = asked(encodePcpMap(QUESTION, { client: CLIENT, nonce: NONCE }))
  t.strictSame(pcp, { is: 'pcp', ...stated, nonce: NONCE, address: parseAddress('203.0.113.7') })
  const [address, mapped] = [asked(encodeNatPmpAddress()), asked(encodeNatPmpMap(QUESTION))]
  t.equal(address?.is === 'natPmpAddress' && formatAddress(address.address), '203.0.113.7')
  t.strictSame(mapped, { is: 'natPmp', ...stated })
  const other = encodePcpMap(QUESTION, { client: parseAddress('10.0.0.3'), nonce: NONCE })
  t.match(asked(other), { is: 'pcp', result: 12 }, 'another NAT is between')
  const old = new Router({ speaks: ['natPmp'], address: '203.0.113.7' })
  const refusal = decodeMapping(old.answer(other, '10.0.0.2') ?? Buffer.alloc(0))
  t.strictSame(refusal, { is: 'unknownVersion', of: 'pcp' })
})

t.test('what is no answer', async (t) => {
  const good = new Router({ speaks: ['pcp'], address: '203.0.113.7' }).answer(
    encodePcpMap(QUESTION, { client: CLIENT, nonce: NONCE }),
    '10.0.0.2',
  )
  if (good === undefined) throw new Error('an answer')
  const changed = (change: (bytes: Buffer) => unknown): Buffer => {
    const bytes = Buffer.from(good)
    change(bytes)
    return bytes
  }
  const rows: readonly (readonly [string, Buffer])[] = [
    ['nothing', Buffer.alloc(0)],
    ['one octet', Buffer.from([0])],
    ['a question', changed((bytes) => (bytes[1] = 1))],
    ['another opcode', changed((bytes) => (bytes[1] = 0x82))],
    ['TCP', changed((bytes) => (bytes[36] = 6))],
    ['an IPv6 address', changed((bytes) => (bytes[44] = 0x20))],
    ['too short', good.subarray(0, 56)],
    ['too long', Buffer.concat([good, Buffer.alloc(1100)])],
    ['a NAT-PMP answer of odd length', Buffer.from('0081000000000001119411940000025800', 'hex')],
    ['version 7', changed((bytes) => (bytes[0] = 7))],
  ]
  for (const [say, bytes] of rows) t.equal(decodeMapping(bytes), undefined, say)
  const starts = fc.constantFrom([0, 0x80], [0, 0x81], [2, 0x81], [2, 0x80])
  fc.assert(
    fc.property(starts, fc.uint8Array({ maxLength: 70 }), (start, rest) => {
      decodeMapping(Buffer.from([...start, ...rest]))
      decodeMapping(Buffer.from(rest))
    }),
  )
})
