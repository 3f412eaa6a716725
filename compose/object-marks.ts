/** The labels and annotations of every object that is written, as the environment of a pod says them. */
import { OBJECT_MARKS } from '../install/marks/marks-env.ts'
import { type MarkKind, type Marks, keyProblem, valueProblem } from '../install/marks/marks.ts'
import { UserError } from '../runtime/user-error.ts'

type TextMap = Readonly<Record<string, string>>

/** What objectMarksEnv() says. Throws UserError that names variable and key. */
export function readObjectMarks(env: Readonly<Record<string, string | undefined>>): Marks {
  return { labels: readMap(env, 'labels'), annotations: readMap(env, 'annotations') }
}

function readMap(env: Readonly<Record<string, string | undefined>>, kind: MarkKind): TextMap {
  const name = OBJECT_MARKS[kind]
  const text = env[name] ?? ''
  if (text === '') return {}
  const map = parsed(text)
  if (typeof map !== 'object' || map === null || Array.isArray(map)) {
    throw new UserError(`${name} ${shown(text)}: expected a JSON object of texts, such as {"team":"net"}`)
  }
  const pairs = Object.entries(map).map(([key, value]: [string, unknown]): [string, string] => {
    const problem = keyProblem(key)
    if (problem !== undefined) throw new UserError(`${name}: key ${shown(key)}: ${problem}`)
    if (typeof value !== 'string') throw new UserError(`${name}: value of ${key}: expected a text`)
    const wrong = valueProblem(kind, value)
    if (wrong !== undefined) throw new UserError(`${name}: value of ${key} ${shown(value)}: ${wrong}`)
    return [key, value]
  })
  return Object.fromEntries(pairs)
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

function shown(text: string): string {
  return JSON.stringify(text.slice(0, 100))
}
