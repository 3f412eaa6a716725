/**
 * Forms: the grammar and limits of a value, as data. A decoder takes the limits, so that a message with a malformed text
 * can still be read and its record refused alone; formProblem() checks everything. Pure.
 */

import type { RecordKind } from '../model.ts'

/** What is wrong with a value: the path of the field, such as `ports[0].name`, and a phrase that continues after it. */
export interface FormProblem {
  readonly field: string
  readonly problem: string
}

export interface TextForm {
  readonly t: 'text'
  /** The fewest and most characters that a decoder accepts. */
  readonly least: 0 | 1
  readonly most: number
  /** What is wrong with a text, apart from `most`; undefined if nothing is. */
  readonly problem: (value: string) => string | undefined
}

export interface WordForm<T extends string> {
  readonly t: 'word'
  readonly words: readonly T[]
}

export interface NumberForm {
  readonly t: 'number'
  readonly least: number
  readonly most: number
}

export interface FlagForm {
  readonly t: 'flag'
}

/** A list; a decoder accepts fewer entries than `least`, but not more than `most`. */
export interface ListForm<F> {
  readonly t: 'list'
  readonly least: number
  readonly most: number
  readonly item: F
  /** What is wrong with the entries together; called once each of them is valid. */
  readonly rule: ((values: readonly never[]) => FormProblem | undefined) | undefined
}

/** Labels or annotations. */
export interface PairsForm {
  readonly t: 'pairs'
  readonly most: number
  /** The most entries that a decoder accepts. */
  readonly mostRead: number
  readonly key: TextForm
  readonly value: TextForm
  /** The most bytes of all keys and values together, in UTF-8. A decoder does not check it. */
  readonly mostTogether: number
}

/** The kind of a record's body, which the caller knows already. */
type KindOf<T> = T extends { readonly kind: RecordKind } ? 'kind' : never

type Fields<T> = {
  readonly [F in Exclude<keyof Required<T>, KindOf<T>> & string]: undefined extends T[F]
    ? FormOf<Exclude<T[F], undefined>> & Optional
    : FormOf<T[F]>
}

/** A group of fields. The types make it complete: a field of the record without a form does not compile. */
export interface GroupForm<T> {
  readonly t: 'group'
  readonly fields: Fields<T>
  /** The fields as pairs. */
  readonly entries: readonly (readonly [name: string, form: AnyForm])[]
  /** The group has one field, which paths leave out. */
  readonly unnamed: boolean
}

interface Optional {
  readonly optional: true
}

/** The form that a value of a type has. */
export type FormOf<T> = [T] extends [boolean]
  ? FlagForm
  : [T] extends [number]
    ? NumberForm
    : [T] extends [string]
      ? string extends T
        ? TextForm
        : T extends { readonly __brand: string }
          ? TextForm
          : WordForm<T>
      : T extends readonly (infer I)[]
        ? ListForm<FormOf<I>>
        : string extends keyof T
          ? PairsForm
          : GroupForm<T>

interface AnyGroup {
  readonly t: 'group'
  readonly entries: readonly (readonly [name: string, form: AnyForm])[]
  readonly unnamed: boolean
}

/** Any form, for code that walks over descriptions. */
export type AnyForm = (
  TextForm | WordForm<string> | NumberForm | FlagForm | ListForm<AnyForm> | PairsForm | AnyGroup
) & {
  readonly optional?: true
}

export function text(most: number, problem: TextForm['problem'], least: 0 | 1 = 0): TextForm {
  return { t: 'text', least, most, problem }
}

export function word<const T extends string>(...words: readonly T[]): WordForm<T> {
  return { t: 'word', words }
}

export function number(least: number, most: number): NumberForm {
  return { t: 'number', least, most }
}

export function list<F>(item: F, least: number, most: number, rule?: ListForm<F>['rule']): ListForm<F> {
  return { t: 'list', least, most, item, rule }
}

export function pairs(init: Omit<PairsForm, 't'>): PairsForm {
  return { t: 'pairs', ...init }
}

export function group<T>(fields: Fields<T>, unnamed = false): GroupForm<T> {
  return { t: 'group', fields, entries: Object.entries(fields) as [string, AnyForm][], unnamed }
}

export function optional<F>(form: F): F & Optional {
  return { ...form, optional: true }
}

/** Quoted, without control characters, and shortened: a member must not write its own lines into the log. */
export function quote(value: string): string {
  return JSON.stringify(value.length > 120 ? `${value.slice(0, 120)}…` : value)
}

/**
 * Returns the first problem of a value, undefined if it has its form. Values of the forms in `apart` are skipped: the
 * caller checks them itself.
 */
export function formProblem<T>(form: FormOf<T>, value: T, apart?: ReadonlySet<unknown>): FormProblem | undefined {
  return problemOf(form, value, apart)
}

/** Returns the problem of a text alone. */
export function textProblem({ most, problem }: TextForm, value: string): string | undefined {
  return value.length > most && problem(value) === undefined ? tooLong(value, most) : problem(value)
}

function problemOf(form: AnyForm, value: unknown, apart: ReadonlySet<unknown> | undefined): FormProblem | undefined {
  if (apart?.has(form)) return undefined
  if (value === undefined) return form.optional === true ? undefined : here('missing')
  switch (form.t) {
    case 'text':
      return typeof value === 'string' ? here(textProblem(form, value)) : here('expected text')
    case 'word':
      return form.words.some((one) => one === value)
        ? undefined
        : here(wrongWord(typeof value === 'string' ? value : typeof value, form.words))
    case 'number':
      return here(numberProblem(form, value))
    case 'flag':
      return typeof value === 'boolean' ? undefined : here('expected true or false')
    case 'list':
      return listProblem(form, value as readonly unknown[], apart)
    case 'pairs':
      return pairsProblem(form, value as Readonly<Record<string, string>>)
    case 'group':
      return groupProblem(form, value as Readonly<Record<string, unknown>>, apart)
  }
}

function here(problem: string | undefined): FormProblem | undefined {
  return problem === undefined ? undefined : { field: '', problem }
}

function below(name: string, { field, problem }: FormProblem): FormProblem {
  return { field: `${name}${field === '' || field.startsWith('[') ? '' : '.'}${field}`, problem }
}

function tooLong(value: string, most: number): string {
  return `has ${value.length} characters: expected at most ${most}`
}

export function wrongWord(value: string, words: readonly string[]): string {
  return `${quote(value)}: expected ${words.join(' or ')}`
}

function numberProblem({ least, most }: NumberForm, value: unknown): string | undefined {
  if (Number.isInteger(value) && Number(value) >= least && Number(value) <= most) return undefined
  return `${String(value)}: expected ${least} to ${most}`
}

/** Checks the number of entries alone. */
export function countProblem(
  entries: number,
  { least = 0, most }: { least?: number; most: number },
): string | undefined {
  return entries >= least && entries <= most ? undefined : `has ${entries} entries: expected ${least} to ${most}`
}

function listProblem(
  form: ListForm<AnyForm>,
  values: readonly unknown[],
  apart: ReadonlySet<unknown> | undefined,
): FormProblem | undefined {
  const count = countProblem(values.length, form)
  if (count !== undefined) return here(count)
  for (let i = 0; i < values.length; i += 1) {
    const wrong = problemOf(form.item, values[i], apart)
    if (wrong !== undefined) return below(`[${i}]`, wrong)
  }
  return form.rule?.(values as readonly never[])
}

function pairsProblem(
  { most, key, value: valueForm, mostTogether }: PairsForm,
  values: Readonly<Record<string, string>>,
): FormProblem | undefined {
  const entries = Object.entries(values)
  const count = countProblem(entries.length, { most })
  if (count !== undefined) return here(count)
  const bytes = pairBytes(values)
  if (bytes > mostTogether) return here(`has ${bytes} bytes: expected at most ${mostTogether}`)
  for (const [name, value] of entries) {
    const badKey = textProblem(key, name)
    if (badKey !== undefined) return here(`key ${badKey}`)
    const badValue = textProblem(valueForm, value)
    if (badValue !== undefined) return { field: `[${name}]`, problem: badValue }
  }
  return undefined
}

const UTF8 = new TextEncoder()

/** The bytes of all keys and values in UTF-8, as the API server counts annotations. */
export function pairBytes(values: Readonly<Record<string, string>>): number {
  return Object.entries(values).reduce((sum, pair) => sum + UTF8.encode(pair.join('')).length, 0)
}

function groupProblem(
  { entries, unnamed }: AnyGroup,
  value: Readonly<Record<string, unknown>>,
  apart: ReadonlySet<unknown> | undefined,
): FormProblem | undefined {
  for (const [name, form] of entries) {
    const wrong = problemOf(form, value[name], apart)
    if (wrong !== undefined) return unnamed ? wrong : below(name, wrong)
  }
  return undefined
}
