/** What a bundle lets out of logs and metrics, line by line. */
import type { Redactor } from './redactor.ts'
import { type AllowedFields, LEFT_OUT, fields, letOut } from './let-out.ts'

const ERROR = fields('type message code')

/** What our own lines are about. A key that is not here goes out without its value. */
export const LOG_FIELDS: AllowedFields = fields(
  'time level component msg reason why ' +
    'accepted address advice audit authority batch before by cause cidrs cluster clusters clusterset code command ' +
    'commands count device due epoch error family field file fingerprint from gateway had holder host identity ids ' +
    'index items kind lane lease left limit lines link links listen loop machine members method minutes name namespace ' +
    'nice node notCarried note octets of path peer place port ports query range record refused remoteLane renumbered ' +
    'revision said seconds serial services signal sockets subject takenAt text to todo until upstream used what',
  { error: 'plain' },
)
/** As pino has the errors of programmers and of Node. */
const WITH_ERRORS: AllowedFields = { ...LOG_FIELDS, err: { ...ERROR, cause: ERROR }, cause: ERROR }

/** Of journald, before the line of ours: `2026-11-26T10:00:00+0000 host sealane[7]: `. */
const LINE = /^([^{]{0,200})(\{.*\})\s*$/

/** Our lines by the list above; what others write, such as a stack, by the patterns alone. */
export function logLetOut(text: string, redactor: Redactor): string {
  const out: string[] = []
  let foreign: string[] = []
  const flush = (): void => {
    // Together: a certificate is many lines.
    if (foreign.length > 0) out.push(redactor.text(foreign.join('\n')))
    foreign = []
  }
  for (const line of text.split('\n')) {
    const [, before = '', json = ''] = LINE.exec(line) ?? []
    const said = fieldsIn(json)
    if (said === undefined) foreign.push(line)
    else {
      flush()
      const isOurs = typeof said['msg'] === 'string' && typeof said['level'] === 'string'
      const clean = redactor.value(said)
      out.push(redactor.text(before) + JSON.stringify(isOurs ? letOut(clean, WITH_ERRORS) : clean))
    }
  }
  flush()
  return out.join('\n')
}

function fieldsIn(json: string): Readonly<Record<string, unknown>> | undefined {
  if (json === '') return undefined
  try {
    return JSON.parse(json) as Readonly<Record<string, unknown>>
  } catch {
    return undefined
  }
}

const OUR_METRIC = /^(# (HELP|TYPE) )?(sealane|process|nodejs)_/

/** Another program may answer there. */
export function metricsLetOut(text: string, redactor: Redactor): string {
  const lines = text.split('\n')
  const ours = lines.filter((line) => OUR_METRIC.test(line))
  const others = lines.filter((line) => line !== '' && !OUR_METRIC.test(line)).length
  return `${others === 0 ? '' : `# ${LEFT_OUT}: ${others} lines\n`}${ours.map((line) => metricLine(line, redactor)).join('\n')}\n`
}

/** Values of labels are escaped. */
function metricLine(line: string, redactor: Redactor): string {
  if (line.startsWith('#')) return redactor.text(line)
  return line.replace(/(\w+)=("(?:[^"\\]|\\.)*")/g, (_all: string, label: string, quoted: string) => {
    const said = fieldsIn(`{"${label}":${quoted}}`)
    return said === undefined
      ? `${label}="${LEFT_OUT}"`
      : `${label}=${JSON.stringify(Object.values(redactor.value(said) as object)[0])}`
  })
}
