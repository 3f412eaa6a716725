/**
 * The part of uplot that the page uses. tsconfig.json names it in place of the package's own types, which speak of the
 * types of a browser.
 */

export type ChartData = readonly [times: readonly number[], ...values: (readonly (number | null)[])[]]

type Texts = (chart: object, values: readonly number[]) => readonly string[]

export interface ChartAxis {
  readonly scale: string
  readonly side?: 1 | 3
  readonly size?: number
  readonly stroke: string
  readonly grid: { readonly show?: boolean; readonly stroke?: string; readonly width?: number }
  readonly ticks: { readonly stroke: string; readonly width: number }
  readonly values: Texts
}

export interface ChartLine {
  readonly label: string
  readonly scale: string
  readonly stroke: string
  readonly width: number
  readonly dash?: readonly number[]
  readonly spanGaps: boolean
  readonly points: { readonly show: boolean }
}

type Range = (chart: object, min: number | null, max: number | null) => readonly [number, number]

export interface ChartOptions {
  readonly width: number
  readonly height: number
  readonly series: readonly [Readonly<Record<string, never>>, ...ChartLine[]]
  readonly axes: readonly ChartAxis[]
  readonly scales: Readonly<Record<string, { readonly time?: boolean; readonly range?: Range }>>
  readonly legend: { readonly show: false }
  readonly cursor: { readonly show: false }
}

declare class Chart {
  constructor(options: ChartOptions, data: ChartData, place: object)
  setData(data: ChartData): void
  destroy(): void
}
export { Chart as default }
