import t from 'tap'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { createLogger } from '../../../runtime/logging/pino-logger.ts'
import { redact } from '../../../runtime/logging/logger.ts'

function lines(level?: 'debug' | 'info' | 'warn'): {
  logger: ReturnType<typeof createLogger>
  lines: string[]
  readonly parsed: () => unknown[]
} {
  const written: string[] = []
  const logger = createLogger('gateway', level, { write: (line) => void written.push(line) })
  return { logger, lines: written, parsed: () => written.map((line) => JSON.parse(line) as unknown) }
}

t.test('one JSON line per call, with component, level and fields', async (t) => {
  const { logger, parsed } = lines()
  logger.debug('not shown')
  logger.info('lane up', { lane: 0, bytes: 5n })
  logger.child({ peer: 'paris' }).warn('lane down', { reason: 'LaneDown', lane: 1 })
  t.match(parsed(), [
    { level: 'info', component: 'gateway', msg: 'lane up', lane: 0, bytes: '5', time: /^\d{4}-.*Z$/ },
    { level: 'warn', component: 'gateway', msg: 'lane down', reason: 'LaneDown', lane: 1, peer: 'paris' },
  ])
})

t.test('a field of a child takes the place of its parent: no name stands there twice', async (t) => {
  const { logger, lines: written } = lines()
  logger.child({ component: 'broker' }).child({ peer: 'paris' }).child({ peer: 'tokyo' }).info('hello')
  t.equal(
    written[0]?.replace(/"\d{4}-[^"]*Z"/, 'T'),
    '{"level":"info","time":T,"component":"broker","peer":"tokyo","msg":"hello"}\n',
  )
})

t.test('secrets never reach a line, at any depth, also in children', async (t) => {
  const { logger, lines: written } = lines('debug')
  const fields = {
    token: 'hunter2',
    nested: { privateKey: 'hunter2', list: [{ secret: 'hunter2' }] },
    key: new TextEncoder().encode('hunter2'),
    error: new Error('failed', { cause: { presharedKey: 'hunter2' } }),
  }
  logger.debug('a', fields)
  logger.child(fields).error('b', { reason: 'InternalError' })
  t.equal(written.length, 2)
  t.notMatch(written.join(), /hunter2/)
  t.match(written[0], /"token":"\[redacted\]"/)
})

t.test('errors become data: a stack only for what the language threw', async (t) => {
  const cause = new Error('no route')
  const expected = Object.assign(new Error('cannot dial', { cause }), { name: 'DialError', code: 'EHOSTUNREACH' })
  t.same(redact(expected), {
    type: 'DialError',
    message: 'cannot dial',
    code: 'EHOSTUNREACH',
    cause: { type: 'Error', message: 'no route' },
  })
  t.match(redact(new TypeError('x is not a function')), { type: 'TypeError', stack: /logger\.test/ })
  const loop: Record<string, unknown> = {}
  loop['self'] = loop
  t.match(JSON.stringify(redact(loop)), /too deep/)
})

t.test('the capturing logger keeps lines of children and redacts too', async (t) => {
  const logger = new CapturingLogger()
  logger.child({ component: 'dns' }).warn('slow', { reason: 'NoAnswer', token: 'x', ms: 5 })
  logger.debug('quiet')
  t.same(logger.lines, [
    { level: 'warn', message: 'slow', fields: { component: 'dns', reason: 'NoAnswer', token: '[redacted]', ms: 5 } },
    { level: 'debug', message: 'quiet', fields: {} },
  ])
  t.same(logger.messages('warn'), ['slow'])
})
