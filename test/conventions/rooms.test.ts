/**
 * A component consists of a few rooms that a reader understands one after the other. A room is a folder directly below
 * a component or foundation, with everything below it. The files directly in the component are its entrance. A room has
 * one public face, which is the file with its name (main.ts for a program's entrance). Rooms import each other without
 * circles.
 */
import { basename, dirname, join, normalize } from 'node:path'
import t from 'tap'
import { PRODUCT, type SourceFile, importsOf, isGenerated, sourceFiles } from '../support/source-tree.ts'
import { circlesIn } from './support/circles.ts'

/** The maximum number of rooms of a component, besides its entrance. */
const MOST_ROOMS = 10
/** A file with fewer lines that only one neighbour imports belongs in that neighbour. */
const SHRED_LINES = 60
/** Matches files that may be small because of their kind: pure files, and the entrance of a program. */
const BY_NAME = /^(plan-[a-z0-9-]+|answer|admission|allocation|main)\.ts$/

const files = sourceFiles(/\.ts$/, PRODUCT)
const paths = new Set(files.map(({ path }) => path))

interface Import {
  readonly from: string
  readonly to: string
  /** Whether the import is loaded only when it is needed. */
  readonly late: boolean
}

const imports: readonly Import[] = files.flatMap(({ path, text }) => {
  const late = new Set([...text.matchAll(/import\(\s*['"]([^'"]+)['"]/g)].map(([, name = '']) => name))
  return importsOf(text)
    .filter((name) => name.startsWith('.'))
    .map((name) => ({ from: path, to: normalize(join(dirname(path), name)), late: late.has(name) }))
    .filter(({ to }) => paths.has(to))
})

const componentOf = (path: string): string => path.split('/')[0] ?? ''

function roomOf(path: string): string {
  const [component = '', room = ''] = path.split('/')
  return room.endsWith('.ts') ? component : `${component}/${room}`
}

/** Returns the face of a room; the entrance of a program has its main file as its face. */
function faceOf(room: string): string {
  const main = `${room}/main.ts`
  return !room.includes('/') && paths.has(main) ? main : `${room}/${basename(room)}.ts`
}

function graphOf(of: (path: string) => string): ReadonlyMap<string, readonly string[]> {
  const graph = new Map<string, Set<string>>(files.map(({ path }) => [of(path), new Set()]))
  for (const { from, to } of imports) if (of(from) !== of(to)) graph.get(of(from))?.add(of(to))
  return new Map([...graph].map(([name, next]) => [name, [...next]]))
}

t.test('components and foundations import each other in no circle', async (t) => {
  t.strictSame(circlesIn(graphOf(componentOf)), [])
})

t.test('rooms of a component import each other in no circle', async (t) => {
  t.strictSame(circlesIn(graphOf(roomOf)), [])
})

t.test('what is outside a room imports its face, and nothing behind it', async (t) => {
  // A late import loads one file for one action, and importing the face would load the whole room.
  const behind = imports.filter(({ from, to, late }) => {
    return !late && roomOf(from) !== roomOf(to) && to !== faceOf(roomOf(to)) && !isGenerated(to)
  })
  for (const { from, to } of behind) t.fail(`${from} imports ${to}: take it from ${faceOf(roomOf(to))}`)
  t.ok(
    imports.some(({ from, to }) => roomOf(from) !== roomOf(to)),
    'there are rooms to look at',
  )
})

t.test('what is in a room does not import its face', async (t) => {
  for (const { from, to } of imports) {
    if (roomOf(from) === roomOf(to) && to === faceOf(roomOf(to)) && isOnlyFace(to))
      t.fail(`${from} imports ${to}, the face of its own room`)
  }
})

t.test('a component has few rooms', async (t) => {
  const rooms = new Set(files.map(({ path }) => roomOf(path)).filter((room) => room.includes('/')))
  for (const component of PRODUCT) {
    const own = [...rooms].filter((room) => room.startsWith(`${component}/`))
    if (own.length > MOST_ROOMS) t.fail(`${component} has ${own.length} rooms: at most ${MOST_ROOMS}`)
  }
  t.ok(rooms.size > 20, `${rooms.size} rooms`)
})

t.test('a thought is not in shreds', async (t) => {
  const late = new Set(imports.filter((one) => one.late).map(({ to }) => to))
  for (const file of files.filter(mayBeShred)) {
    const by = new Set(imports.filter(({ to }) => to === file.path).map(({ from }) => from))
    const [one] = by
    if (by.size !== 1 || one === undefined || late.has(file.path) || isOnlyFace(one)) continue
    if (dirname(one) !== dirname(file.path)) continue
    t.fail(`${file.path} has ${linesOf(file)} lines, and ${one} alone imports it: merge it`)
  }
})

function mayBeShred({ path, text }: SourceFile): boolean {
  return text.split('\n').length <= SHRED_LINES && !BY_NAME.test(basename(path)) && !isGenerated(path)
}

function linesOf({ text }: SourceFile): number {
  return text.split('\n').length - 1
}

/** Returns whether the file only exports what other files declare. */
function isOnlyFace(path: string): boolean {
  const text = files.find((file) => file.path === path)?.text ?? ''
  return text.split('\n').every((line) => !/^(export )?(async )?(function|class|const|interface|type \w+ =)/.test(line))
}
