"""Values on their way in and out: conversion, rules and ids, all on Arrow columns."""
