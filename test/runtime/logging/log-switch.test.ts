import { EventEmitter } from 'node:events'
import t from 'tap'
import { LOG_LEVELS, LogSwitch, toggleBySignal } from '../../../runtime/logging/logger.ts'
import { createLogger } from '../../../runtime/logging/pino-logger.ts'
import { eventually } from '../../support/eventually.ts'

function logged(log: LogSwitch) {
  const written: string[] = []
  const logger = createLogger('gateway', log, { write: (line) => void written.push(line) })
  const taken = (): string[] => written.splice(0).map((line) => (JSON.parse(line) as { msg: string }).msg)
  const all = (): string[] => {
    for (const one of [logger, logger.child({ a: 1 }), logger.child({ a: 1 }).child({ b: 2 })]) {
      one.debug('debug')
      one.info('info')
      one.warn('warn', { reason: 'InternalError' })
      one.error('error', { reason: 'InternalError' })
    }
    return taken()
  }
  return { logger, taken, all }
}

function three(...levels: readonly string[]): readonly string[] {
  return [...levels, ...levels, ...levels]
}

t.test('each level writes itself and what is worse, in children too', async (t) => {
  const order = ['debug', 'info', 'warn', 'error']
  for (const level of LOG_LEVELS) {
    const from = level === 'silent' ? order.length : order.indexOf(level)
    t.same(logged(new LogSwitch(level)).all(), three(...order.slice(from)), level)
  }
})

t.test('toggled while loggers are in use, there and back, again and again', async (t) => {
  for (const usual of LOG_LEVELS) {
    const log = new LogSwitch(usual)
    const { all } = logged(log)
    const before = all()
    for (let i = 0; i < 3; i += 1) {
      log.toggle()
      if (usual === 'debug') t.same(all(), three('info', 'warn', 'error'), 'debug goes to info')
      else t.same(all(), three('debug', 'info', 'warn', 'error'), usual)
      log.toggle()
      t.same(all(), before, usual)
      t.equal(log.level, usual)
    }
  }
})

t.test('a signal toggles and says so, also where information is not written', async (t) => {
  for (const usual of ['info', 'error', 'silent'] as const) {
    const signals = new EventEmitter()
    const log = new LogSwitch(usual)
    const { logger, taken } = logged(log)
    const forget = toggleBySignal(log, logger, signals)
    for (let i = 0; i < 2; i += 1) {
      signals.emit('SIGUSR2')
      t.equal(log.level, 'debug')
      signals.emit('SIGUSR2')
      t.equal(log.level, usual)
    }
    t.same(
      taken(),
      ['debug logging is on', 'debug logging is off', 'debug logging is on', 'debug logging is off'],
      usual,
    )
    forget()
    t.equal(signals.listenerCount('SIGUSR2'), 0)
  }
})

t.test('the signal of the system', async (t) => {
  const log = new LogSwitch('warn')
  const forget = toggleBySignal(log, logged(log).logger)
  t.teardown(forget)
  for (const wanted of ['debug', 'warn', 'debug'] as const) {
    process.kill(process.pid, 'SIGUSR2')
    await eventually(() => log.level === wanted)
  }
  t.pass('there, back, and there')
})
