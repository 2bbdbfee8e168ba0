"""A few lines of LLVM's code around what numba made of a kernel: a function that CPython calls directly."""

from __future__ import annotations

from itertools import islice
from typing import Any

from numba import types
from numba.np.numpy_support import as_dtype

from colonnade.compiling.callables import KNOWN, KNOWN_AS

_STRIDES, _CONTIGUOUS, _FORMAT, _WRITABLE = 0x18, 0x38, 0x04, 0x01  # CPython's PyBUF_...
_TYPE_AT = object.__basicsize__ - 8  # where an object says of what type it is: the last field of all objects' head
_PASSED_OVER = ("TypeError", "ValueError", "OverflowError", "BufferError")  # by which an object says that it is another
_HEAD = """
%view = type { ptr, ptr, i64, i64, i32, i32, ptr, ptr, ptr, ptr, ptr }
declare i32 @PyObject_GetBuffer(ptr, ptr, i32)
declare i32 @PyBuffer_IsContiguous(ptr, i8)
declare void @PyBuffer_Release(ptr)
declare double @PyFloat_AsDouble(ptr)
declare i64 @PyLong_AsLongLong(ptr)
declare ptr @PyBool_FromLong(i64)
declare ptr @PyErr_Occurred()
declare i32 @PyErr_ExceptionMatches(ptr)
declare void @PyErr_Clear()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @Py_BuildValue(ptr, ...)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyNumber_TrueDivide(ptr, ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
"""


class Wrapper:
    """A function of CPython's fast calling convention, `(self, arguments, count)`, around a native one of numba's.

    A native function takes a place for its result and one for what it raises, then each argument: an array as the
    pointers of its owner (none here), how many numbers of how many bytes, where they are, its shape and its strides.
    Arguments of other types than expected are handed on to `self`. A number is of a type if numba would say so: no bool
    is an integer, no integer a bool, and what only can be converted to one (another precision, an array) is neither.
    """

    def __init__(self, symbol: str, native: Any, arguments: tuple[Any, ...], result: Any) -> None:
        self._symbol, self._native, self._arguments, self._result = symbol, native, arguments, result
        self._lines: list[str] = []
        self._passed: list[str] = []
        self._views: list[str] = []

    def text(self) -> str | None:
        """Of a module with this function; None where a type has no counterpart here."""
        if self._result not in _RESULTS:
            return None
        for at, kind in enumerate(self._arguments):
            self._line(f"%place{at} = getelementptr ptr, ptr %arguments, i64 {at}")
            self._line(f"%object{at} = load ptr, ptr %place{at}")
            if isinstance(kind, types.Array) and kind.layout in "CA" and kind.aligned:
                self._array(at, kind)
            elif kind in (types.int64, types.float64, types.boolean):
                self._number(at, kind)
            else:
                return None
        kind, letter = _RESULTS[self._result]
        views = "\n".join(f"  {one} = alloca %view\n  store %view zeroinitializer, ptr {one}" for one in self._views)
        release = "\n".join(f"  call void @PyBuffer_Release(ptr {one})" for one in self._views)
        native = f"@{self._native.name}(ptr, ptr, {', '.join(one.split()[0] for one in self._passed)})"
        value = "" if self._result is types.none else f", {kind} %value"
        answer = f"call ptr (ptr, ...) @Py_BuildValue(ptr @result{value})"
        if self._result is types.boolean:
            answer = "call ptr @PyBool_FromLong(i64 %truth)"
        return f"""{_HEAD}
{chr(10).join(f"@{KNOWN_AS}{name} = external global i8" for name in KNOWN)}
@result = private constant [{len(letter) + 1} x i8] c"{letter}\\00"
declare i32 {native}

define ptr @{self._symbol}(ptr %self, ptr %arguments, i64 %count) {{
  %place = alloca {kind}
  %raised = alloca ptr
{views}
  %enough = icmp eq i64 %count, {len(self._arguments)}
  br i1 %enough, label %look, label %others
look:
{chr(10).join(self._lines)}
  %thread = call ptr @PyEval_SaveThread()
  %status = call i32 @{self._native.name}(ptr %place, ptr %raised, {", ".join(self._passed)})
  call void @PyEval_RestoreThread(ptr %thread)
{release}
  %wrong = icmp sgt i32 %status, 0
  br i1 %wrong, label %raise, label %done
done:
  %value = load {kind}, ptr %place
{"  %truth = zext i8 %value to i64" if self._result is types.boolean else ""}
  %answer = {answer}
  ret ptr %answer
raise:
  %zero = call ptr @PyLong_FromLongLong(i64 0)
  %none = call ptr @PyNumber_TrueDivide(ptr %zero, ptr %zero)
  ret ptr %none
others:
  %error = call ptr @PyErr_Occurred()
  %silent = icmp eq ptr %error, null
  br i1 %silent, label %next, label %judge
judge:
{_judge()}
clear:
  call void @PyErr_Clear()
  br label %next
fail:
{release}
  ret ptr null
next:
{release}
  %theirs = call ptr @PyObject_Vectorcall(ptr %self, ptr %arguments, i64 %count, ptr null)
  ret ptr %theirs
}}
"""

    def _line(self, text: str) -> None:
        self._lines.append(f"  {text}")

    def _go_on_if(self, condition: str) -> None:
        """Else hand all arguments on."""
        label = f"then{len(self._lines)}"
        self._line(f"br i1 {condition}, label %{label}, label %others\n{label}:")

    def _field(self, name: str, view: str, number: int, kind: str) -> str:
        self._line(f"{name}.at = getelementptr %view, ptr {view}, i32 0, i32 {number}")
        self._line(f"{name} = load {kind}, ptr {name}.at")
        return name

    def _array(self, at: int, kind: Any) -> None:
        view, dtype = f"%view{at}", as_dtype(kind.dtype)
        self._views.append(view)
        flags = _FORMAT | (_CONTIGUOUS if kind.layout == "C" else _STRIDES)
        flags |= _WRITABLE if self._is_written(len(self._passed) + 4) else 0
        self._line(f"%got{at} = call i32 @PyObject_GetBuffer(ptr %object{at}, ptr {view}, i32 {flags})")
        self._line(f"%is{at} = icmp eq i32 %got{at}, 0")
        self._go_on_if(f"%is{at}")
        if kind.layout == "A":  # for memory without gaps there is faster code
            self._line(f"%dense{at} = call i32 @PyBuffer_IsContiguous(ptr {view}, i8 {ord('C')})")
            self._line(f"%loose{at} = icmp eq i32 %dense{at}, 0")
            self._go_on_if(f"%loose{at}")
        dimensions = self._field(f"%dimensions{at}", view, 5, "i32")
        letters = self._field(f"%format{at}", view, 6, "ptr")
        data = self._field(f"%data{at}", view, 0, "ptr")
        self._line(f"%letters{at} = load i16, ptr {letters}, align 1")  # one letter, and the end
        self._line(f"%shaped{at} = icmp eq i32 {dimensions}, {kind.ndim}")
        self._line(f"%typed{at} = icmp eq i16 %letters{at}, {ord(dtype.char)}")
        self._line(f"%fits{at} = and i1 %shaped{at}, %typed{at}")
        self._go_on_if(f"%fits{at}")
        length = self._field(f"%length{at}", view, 2, "i64")
        self._line(f"%items{at} = udiv i64 {length}, {dtype.itemsize}")
        self._passed += ["ptr null", "ptr null", f"i64 %items{at}", f"i64 {dtype.itemsize}", f"ptr {data}"]
        for number, name in ((7, "shape"), (8, "strides")):
            table = self._field(f"%{name}{at}", view, number, "ptr")
            for axis in range(kind.ndim):
                self._line(f"{table}.{axis}.at = getelementptr i64, ptr {table}, i64 {axis}")
                self._line(f"{table}.{axis} = load i64, ptr {table}.{axis}.at")
                self._passed.append(f"i64 {table}.{axis}")

    def _is_written(self, place: int) -> bool:
        """Whether the function may write to an array: LLVM has looked. Two places come before the arguments."""
        known = set(next(islice(self._native.arguments, place + 2, None)).attributes)
        return not known & {b"readonly", b"readnone"}

    def _number(self, at: int, kind: Any) -> None:
        if kind is types.boolean:
            self._passed.append(f"i8 {self._truth(at)}")
            return
        names, llvm, convert = _NUMBERS[kind]
        self._line(f"%type{at}.at = getelementptr i8, ptr %object{at}, i64 {_TYPE_AT}")
        self._line(f"%type{at} = load ptr, ptr %type{at}.at")
        self._go_on_if(self._either(f"%is{at}", f"%type{at}", *names))
        self._line(f"%number{at} = call {llvm} @{convert}(ptr %object{at})")
        if kind is types.int64:  # one of Python's may be too large
            self._line(f"%error{at} = call ptr @PyErr_Occurred()")
            self._line(f"%small{at} = icmp eq ptr %error{at}, null")
            self._go_on_if(f"%small{at}")
        self._passed.append(f"{llvm} %number{at}")

    def _truth(self, at: int) -> str:
        """Of Python's two bools and numpy's, each of which there is once."""
        true = self._either(f"%true{at}", f"%object{at}", "True", "numpy_True")
        false = self._either(f"%false{at}", f"%object{at}", "False", "numpy_False")
        self._line(f"%bool{at} = or i1 {true}, {false}")
        self._go_on_if(f"%bool{at}")
        self._line(f"%truth{at} = zext i1 {true} to i8")
        return f"%truth{at}"

    def _either(self, name: str, pointer: str, one: str, other: str) -> str:
        for place, known in (("one", one), ("other", other)):
            self._line(f"{name}.{place}.known = load ptr, ptr @{KNOWN_AS}{known}")
            self._line(f"{name}.{place} = icmp eq ptr {pointer}, {name}.{place}.known")
        self._line(f"{name} = or i1 {name}.one, {name}.other")
        return name


_RESULTS = {
    types.none: ("ptr", ""),
    types.int64: ("i64", "L"),
    types.float64: ("double", "d"),
    types.boolean: ("i8", ""),
}
_NUMBERS = {
    types.int64: (("int", "numpy_int64"), "i64", "PyLong_AsLongLong"),
    types.float64: (("float", "numpy_float64"), "double", "PyFloat_AsDouble"),
}


def _judge() -> str:
    """Whether what was raised only says that an object is of another type; Ctrl-C, say, is not to be lost."""
    lines, before = [], "false"
    for name in _PASSED_OVER:
        lines.append(f"  %{name}.known = load ptr, ptr @{KNOWN_AS}{name}")
        lines.append(f"  %{name}.match = call i32 @PyErr_ExceptionMatches(ptr %{name}.known)")
        lines.append(f"  %{name}.is = icmp ne i32 %{name}.match, 0")
        lines.append(f"  %{name}.any = or i1 {before}, %{name}.is")
        before = f"%{name}.any"
    return "\n".join([*lines, f"  br i1 {before}, label %clear, label %fail"])
